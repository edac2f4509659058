// @ts-check
/** Bytes of an event stream in, messages out, by the rules of the HTML standard (9.2.6, interpreting an event stream). */

const LINE_END = /\r\n|\n|\r/g

/** @typedef {{event: string, data: string, id: string}} Message   `event` is '' for the default type */

export class SSEParser {
  /** Milliseconds the server asked to wait before a reconnect. @type {number | undefined} */
  retry

  #decoder = new TextDecoder()
  #line = ''
  #afterCR = false
  #event = ''
  /** @type {string[]} */
  #data = []
  #id = ''

  /** The messages that `bytes` complete; what is left over waits for the next piece, wherever it was cut.
   * @param {Uint8Array} bytes
   * @returns {Message[]} */
  push(bytes) {
    let text = this.#decoder.decode(bytes, { stream: true })
    if (!text) return []
    if (this.#afterCR && text.startsWith('\n')) text = text.slice(1)
    this.#afterCR = text.endsWith('\r')

    /** @type {Message[]} */
    const messages = []
    let from = 0
    for (const { 0: end, index } of text.matchAll(LINE_END)) {
      this.#endLine(this.#line + text.slice(from, index), messages)
      this.#line = ''
      from = index + end.length
    }
    this.#line += text.slice(from)
    return messages
  }

  /** @param {string} line
   * @param {Message[]} messages */
  #endLine(line, messages) {
    if (line === '') {
      if (this.#data.length) messages.push({ event: this.#event, data: this.#data.join('\n'), id: this.#id })
      this.#event = ''
      this.#data = []
      return
    }
    const colon = line.indexOf(':')
    const field = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
    if (field === 'data') this.#data.push(value)
    else if (field === 'event') this.#event = value
    else if (field === 'id' && !value.includes('\0')) this.#id = value
    else if (field === 'retry' && /^[0-9]+$/.test(value)) this.retry = Number(value)
  }
}
