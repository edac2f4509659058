// @ts-check
/** What the centre says when there are no calls to show. */

import { icon } from '../icons.js'
import { make } from '../dom.js'

/** @param {string} text @param {(text: string, said: string) => void} copy */
function code(text, copy) {
  const button = make('button', { class: 'tool', type: 'button', 'aria-label': 'Copy', title: 'Copy' }, icon('copy'))
  button.addEventListener('click', () => copy(text, 'Copied'))
  return make('div', { class: 'code' }, make('code', {}, text), button)
}

/** @param {string} base address of the gateway @param {(text: string, said: string) => void} copy */
export function noRuns(base, copy) {
  const python = 'from listeners import RunPublisher\nwith RunPublisher("demo") as run, run.call("hello"): ...'
  return make('div', { class: 'note wide' },
    make('h2', {}, 'No runs yet'),
    make('p', {}, 'A run appears here as soon as an agent publishes its first event.'),
    make('div', { class: 'label' }, 'From Python'), code(python, copy),
    make('div', { class: 'label' }, 'Watch from a terminal'), code(`curl -N ${base}/runs/demo/events`, copy))
}

/** @param {string} name of an icon @param {string} text @param {string} [more] */
export const note = (name, text, more) =>
  make('div', { class: 'note' }, make('div', { class: 'line' }, icon(name), make('span', {}, text)), ...(more ? [make('p', {}, more)] : []))

export const loading = () => make('div', { class: 'ghost', 'aria-hidden': 'true' }, make('div'), make('div'), make('div'))
