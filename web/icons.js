// @ts-check
/**
 * The icons: a 16 px box, 1.5 px strokes, round caps, `currentColor`. The weight of an icon follows its
 * urgency: dotted, arc, thin check; filled only where a person is needed.
 */

/** @typedef {[tag: string, attributes: Record<string, string>][]} Drawing */

const KNOCKED_OUT = { stroke: 'var(--_bg)', 'stroke-width': '1.6' }

/** @type {Record<string, Drawing>} */
const DRAWINGS = {
  identified: [['circle', { cx: '8', cy: '8', r: '6.25', 'stroke-dasharray': '.5 2.305' }]],
  running: [
    ['circle', { cx: '8', cy: '8', r: '6.25', opacity: '.25' }],
    ['path', { d: 'M8 1.75A6.25 6.25 0 0 1 14.25 8' }],
  ],
  completed: [['path', { d: 'm3.25 8.5 3.1 3.1 6.4-6.9' }]],
  failed: [
    ['circle', { cx: '8', cy: '8', r: '7', fill: 'currentColor', stroke: 'none' }],
    ['path', { d: 'm5.6 5.6 4.8 4.8m0-4.8-4.8 4.8', ...KNOCKED_OUT }],
  ],
  question: [
    ['rect', { x: '1', y: '1', width: '14', height: '14', rx: '4', fill: 'currentColor', stroke: 'none' }],
    ['path', { d: 'M5.9 6.1a2.1 2.1 0 1 1 3.3 1.75c-.75.5-1.2.85-1.2 1.65M8 11.8v.01', ...KNOCKED_OUT }],
  ],
  denied: [
    ['circle', { cx: '8', cy: '8', r: '6.25' }],
    ['path', { d: 'm3.7 12.3 8.6-8.6' }],
  ],
  cancelled: [
    ['circle', { cx: '8', cy: '8', r: '6.25', 'stroke-dasharray': '2.41 2.5', 'stroke-dashoffset': '1.2' }],
    ['path', { d: 'M5.5 8h5' }],
  ],
  chevron: [['path', { d: 'M6 3.75 10.25 8 6 12.25' }]],
  back: [['path', { d: 'M10 3.25 5.25 8 10 12.75' }]],
  close: [['path', { d: 'm4 4 8 8m0-8-8 8' }]],
  copy: [
    ['rect', { x: '5.75', y: '5.75', width: '8.5', height: '8.5', rx: '2' }],
    ['path', { d: 'M3 10.25a1.25 1.25 0 0 1-1.25-1.25V3.75a2 2 0 0 1 2-2H9A1.25 1.25 0 0 1 10.25 3' }],
  ],
  filter: [['path', { d: 'M2 4.25h12M4.5 8h7M6.75 11.75h2.5' }]],
  search: [
    ['circle', { cx: '7', cy: '7', r: '4.75' }],
    ['path', { d: 'm10.5 10.5 3.5 3.5' }],
  ],
  pause: [['path', { d: 'M5.5 3.5v9M10.5 3.5v9' }]],
  play: [['path', { d: 'M5 3.4v9.2L12.5 8Z', fill: 'currentColor', 'stroke-linejoin': 'round' }]],
  live: [['circle', { cx: '8', cy: '8', r: '3', fill: 'currentColor', stroke: 'none' }]],
  more: [['path', { d: 'M3 8h.01M8 8h.01M13 8h.01', 'stroke-width': '2.4' }]],
  panel: [
    ['rect', { x: '1.75', y: '2.75', width: '12.5', height: '10.5', rx: '2' }],
    ['path', { d: 'M10 2.75v10.5' }],
  ],
}

const SVG = 'http://www.w3.org/2000/svg'

/** @param {string} tag @param {Record<string, string>} attributes */
function draw(tag, attributes) {
  const shape = document.createElementNS(SVG, tag)
  for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value)
  return shape
}

/**
 * Draw an icon; it is hidden from assistive technology, so a text always stands beside it.
 *
 * @param {string} name a key of the drawings
 * @returns {SVGElement}
 */
export function icon(name) {
  const svg = draw('svg', {
    class: `icon icon-${name}`, viewBox: '0 0 16 16', fill: 'none', stroke: 'currentColor', 'stroke-width': '1.5',
    'stroke-linecap': 'round', 'stroke-linejoin': 'round', 'aria-hidden': 'true',
  })
  svg.append(...DRAWINGS[name].map(([tag, attributes]) => draw(tag, attributes)))
  return /** @type {SVGElement} */ (svg)
}
