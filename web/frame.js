// @ts-check
/** When to show what has changed: at the next frame of a visible page, within 100 ms elsewhere. */

const ELSEWHERE = 100

/**
 * @typedef {object} Clock              time as an argument; the default is the platform's
 * @property {() => number} now         milliseconds since 1970
 * @property {(callback: () => void, ms: number) => any} setTimeout
 * @property {(timer: any) => void} clearTimeout
 */

/** @type {Clock} */
export const systemClock = {
  now: () => Date.now(),
  setTimeout: (callback, ms) => setTimeout(callback, ms),
  clearTimeout: (timer) => clearTimeout(timer),
}

/** Call `callback` once, at the next frame; returns what takes that back.
 * @param {() => void} callback
 * @param {Clock} clock */
export function nextFrame(callback, clock) {
  /** @type {number | undefined} */
  let frame
  const cancel = () => {
    clock.clearTimeout(timer)
    if (frame !== undefined) cancelAnimationFrame(frame)
  }
  const run = () => {
    cancel()
    callback()
  }
  // Both: a page that is hidden after this gets no frame any more.
  const timer = clock.setTimeout(run, ELSEWHERE)
  if (globalThis.document?.visibilityState === 'visible') frame = requestAnimationFrame(run)
  return cancel
}
