// @ts-check
/** The few ways in which the elements and the inspector touch the DOM. All text is set as text. */

import { icon } from './icons.js'

/** Pixels from its end within which a reader counts as being there. */
const NEAR = 40

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, string>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function make(tag, attributes, ...children) {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value)
  element.append(...children)
  return element
}

/** @param {Element} element @param {string} text written only if it differs */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text
}

/**
 * Put an icon into a slot; a running arc that stays keeps turning where it is.
 *
 * @param {HTMLElement} slot
 * @param {string} name
 */
export function swapIcon(slot, name) {
  if (slot.dataset.icon === name) return
  slot.dataset.icon = name
  slot.replaceChildren(icon(name))
}

/**
 * Follow the end of what scrolls, as long as the reader is there: not whom has scrolled back. Asking the element
 * at each change would have the page laid out each time.
 *
 * @param {HTMLElement} scroller
 * @returns {() => void} to be called after something was added
 */
export function followEnd(scroller) {
  let atEnd = true
  scroller.addEventListener('scroll', () => {
    atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR
  }, { passive: true })
  return () => {
    if (atEnd) scroller.scrollTop = scroller.scrollHeight
  }
}

/** Says things to assistive technology: changes politely, what needs a person at once. */
export class Announcer {
  /** @param {ParentNode} parent */
  constructor(parent) {
    this.status = make('div', { class: 'sr', role: 'status' })
    this.alert = make('div', { class: 'sr', role: 'alert' })
    parent.append(this.status, this.alert)
  }

  /** @param {string} text @param {boolean} [urgent] */
  say(text, urgent = false) {
    setText(urgent ? this.alert : this.status, text)
    // Once said it is a repetition of what stands on the page.
    clearTimeout(this.timer)
    this.timer = setTimeout(() => [this.status, this.alert].forEach((region) => setText(region, '')), 3000)
  }
}
