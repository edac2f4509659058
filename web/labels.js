// @ts-check
/**
 * Every built-in text of the elements, and how numbers and durations are written. `configure` replaces any of
 * them; a text that is left out stays English.
 */

/**
 * A text with `{names}`, or one per plural category of `n` (and per exact number, which wins).
 * @typedef {string | Record<string, string>} Label
 *
 * @typedef {Record<string, Label> & { tools?: Record<string, string | string[]> }} Labels texts by key; `tools`
 * gives titles by tool name: running, done, failed, asking. `{names}` in them come from the call's arguments.
 */

/** @type {Record<string, Label>} */
const ENGLISH = {
  starting: 'Starting…',
  thinking: 'Thinking…',
  preparing: 'preparing',
  denied: 'not allowed',
  cancelled: 'stopped',
  reconnecting: 'reconnecting',
  unavailable: 'Live updates unavailable',
  waiting: 'Waiting for you',
  waiting_for: 'The agent waits for your answer.',
  review: 'Review',
  used: { 0: 'Finished without using a tool', one: 'Used {n} tool', other: 'Used {n} tools' },
  failed: 'Failed',
  stopped: 'Stopped',
  more: '+{n}',
  attempt: { one: '{n}st try', two: '{n}nd try', few: '{n}rd try', other: '{n}th try' },
  of: '{progress} of {total}',
  times: '{title} × {n}',
  show_calls: 'Show the calls',
  calls: 'Tool calls',
  arguments: 'Arguments',
  result: 'Result',
  error: 'Error',
  tool: 'Tool',
  show_all: { 1: 'Show all', other: 'Show all {n} lines' },
  state_identified: 'preparing',
  state_running: 'running',
  state_interrupted: 'waiting for you',
  state_completed: 'done',
  state_failed: 'failed',
  state_denied: 'not allowed',
  state_cancelled: 'stopped',
  milliseconds: '{n} ms',
  seconds: '{n} s',
  minutes: '{m} m {s} s',
  hours: '{h} h {m} m',
}

/** @type {Labels} */
let labels = ENGLISH
// The built-in texts are English, so their numbers and plurals are too until the page says otherwise.
let locale = 'en'
const changes = new EventTarget()

/**
 * Set the language of all elements on the page.
 *
 * @param {{ locale?: string, labels?: Labels }} options `locale`: a BCP 47 tag, for numbers and plurals
 */
export function configure(options) {
  if (options.locale) locale = options.locale
  if (options.labels) labels = { ...labels, ...options.labels }
  changes.dispatchEvent(new Event('change'))
}

/** @param {() => void} listener told after each `configure` @param {AbortSignal} signal */
export function whenConfigured(listener, signal) {
  changes.addEventListener('change', listener, { signal })
}

/** @param {string} template @param {Record<string, unknown>} values @returns {string | undefined} if a name is unknown */
export function fill(template, values) {
  let known = true
  const text = template.replace(/\{(\w+)\}/g, (_, name) => {
    if (values[name] === undefined) known = false
    return typeof values[name] === 'number' ? formatNumber(/** @type {number} */ (values[name])) : String(values[name])
  })
  return known ? text : undefined
}

/**
 * The text for a key.
 *
 * @param {string} key
 * @param {Record<string, string | number>} [values] for its `{names}`; `n` chooses the plural form
 * @param {'cardinal' | 'ordinal'} [type] which plural rules `n` follows
 * @returns {string}
 */
export function label(key, values = {}, type = 'cardinal') {
  let found = labels[key] ?? ENGLISH[key] ?? key
  if (typeof found !== 'string') {
    const n = Number(values.n)
    // What was left out stays English, and so do its plurals.
    const rules = new Intl.PluralRules(found === ENGLISH[key] ? 'en' : locale, { type })
    found = found[n] ?? found[rules.select(n)] ?? found.other
  }
  return fill(found, values) ?? found
}

/** @param {string} name @param {number} form 0 running, 1 done, 2 failed, 3 asking @returns {string | undefined} */
export function toolLabel(name, form) {
  const titles = labels.tools?.[name]
  return typeof titles === 'string' ? (form ? undefined : titles) : titles?.[form]
}

/** @type {Map<string, Intl.NumberFormat>} */
const formats = new Map()

/** @param {number} value @param {number} [digits] after the decimal sign, exactly; without, as the number has @returns {string} */
export function formatNumber(value, digits) {
  const key = `${locale} ${digits}`
  let format = formats.get(key)
  if (!format) {
    format = new Intl.NumberFormat(locale, digits === undefined ? {} : { minimumFractionDigits: digits, maximumFractionDigits: digits })
    formats.set(key, format)
  }
  return format.format(value)
}

/**
 * A duration as people read it: tenths below ten seconds, whole seconds below a minute, then `1 m 05 s`.
 *
 * @param {number} ms
 * @returns {string}
 */
export function formatDuration(ms) {
  if (ms < 95) return label('milliseconds', { n: formatNumber(Math.max(0, Math.round(ms))) })
  const tenths = Math.round(ms / 100)
  if (tenths < 100) return label('seconds', { n: formatNumber(tenths / 10, 1) })
  const seconds = Math.round(ms / 1000)
  if (seconds < 60) return label('seconds', { n: formatNumber(seconds) })
  const two = (/** @type {number} */ n) => String(n).padStart(2, '0')
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return label('minutes', { m: formatNumber(minutes), s: two(seconds % 60) })
  return label('hours', { h: formatNumber(Math.floor(minutes / 60)), m: two(minutes % 60) })
}
