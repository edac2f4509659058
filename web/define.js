// @ts-check
/** Registers `<tool-state>` and `<run-state>`; harmless when it is loaded twice, from two gateways, or in Node. */

import { RunStateElement } from './run-state-element.js'
import { ToolStateElement } from './tool-state-element.js'

export { configure } from './labels.js'
export { RunStateElement, ToolStateElement }

const registry = globalThis.customElements
for (const [tag, element] of /** @type {const} */ ([['run-state', RunStateElement], ['tool-state', ToolStateElement]])) {
  if (registry && !registry.get(tag)) registry.define(tag, element)
}
