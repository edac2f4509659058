// @ts-check
/** One timer for all clocks on the page: tenths of a second are shown, so ten times a second, and only in sight. */

/** @type {Set<() => void>} */
const listeners = new Set()
/** @type {ReturnType<typeof setInterval> | undefined} */
let timer

function beat() {
  if (!document.hidden) for (const listener of listeners) listener()
}

/**
 * Be told every 100 ms while the page is visible.
 *
 * @param {() => void} listener
 * @param {boolean} wanted false stops it
 */
export function tick(listener, wanted) {
  if (wanted) listeners.add(listener)
  else listeners.delete(listener)
  if (listeners.size && !timer) timer = setInterval(beat, 100)
  if (!listeners.size && timer) timer = void clearInterval(timer)
}
