// @ts-check
/**
 * The design tokens: every colour, size and duration of the elements and the inspector, in one style sheet
 * that the page and each shadow root adopt. No other file holds a colour.
 *
 * A page overrides a token by its public name (`--tc-accent`), on the element or on any ancestor; the rules
 * use the private one (`--_accent`), because a value declared on `:host` would hide an inherited one.
 *
 * The elements follow the page's `color-scheme`, not the system's preference alone: on a page that is always
 * light, light text for a dark system would be unreadable. `theme="light|dark"` overrides both.
 */

const TOKENS = `
:host, :root {
  --_bg: var(--tc-bg, light-dark(#FAFBFC, #0E1116));
  --_surface: var(--tc-surface, light-dark(#FFFFFF, #151A21));
  --_sunken: var(--tc-sunken, light-dark(#F1F3F6, #0A0D11));
  --_select: var(--tc-select, light-dark(#EAEEF3, #1E2630));
  --_line: var(--tc-line, light-dark(#DDE1E7, #272E38));
  --_track: var(--_line);
  --_edge: var(--tc-edge, light-dark(#838B98, #6D7785));
  --_ink: var(--tc-ink, light-dark(#12161C, #EDF0F3));
  --_ink-2: var(--tc-ink-2, light-dark(#464E5A, #B4BCC7));
  --_ink-3: var(--tc-ink-3, light-dark(#606977, #8E98A6));
  --_accent: var(--tc-accent, light-dark(#0B63CE, #74B0FF));
  --_accent-soft: var(--tc-accent-soft, light-dark(#E6F0FD, #12263F));
  --_warn: var(--tc-warn, light-dark(#8A5600, #F2B94B));
  --_warn-soft: var(--tc-warn-soft, light-dark(#FFF7E5, #211C10));
  --_bad: var(--tc-bad, light-dark(#B42318, #FF8B80));
  --_bad-soft: var(--tc-bad-soft, light-dark(#FDEBE9, #361714));
  --_shade: 0 8px 24px rgb(0 0 0/.16);
  --_mono: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  --_ease: cubic-bezier(.2,0,0,1);
  --_press: 120ms var(--_ease);
  --_fade: 160ms var(--_ease);
  --_enter: 200ms var(--_ease);
  --_open: 240ms var(--_ease);
  --_row: 36px;
}
@media (pointer: coarse) { :host, :root { --_row: 44px } }
@media (forced-colors: active) {
  :host, :root {
    --_bg: Canvas; --_surface: Canvas; --_sunken: Canvas; --_select: Canvas; --_line: CanvasText; --_track: GrayText;
    --_edge: CanvasText; --_ink: CanvasText; --_ink-2: CanvasText; --_ink-3: CanvasText; --_accent: Highlight;
    --_accent-soft: Canvas; --_warn: CanvasText; --_warn-soft: Canvas; --_bad: CanvasText; --_bad-soft: Canvas;
  }
}
:root { color-scheme: light dark }
:host([theme="light"]), :root[theme="light"] { color-scheme: light }
:host([theme="dark"]), :root[theme="dark"] { color-scheme: dark }

*, ::before, ::after { box-sizing: border-box }
[hidden]:not([hidden="until-found"]) { display: none !important }
::selection { background: var(--_accent-soft) }
:focus-visible { outline: 2px solid var(--_accent); outline-offset: 2px }
button { font: inherit; color: inherit; background: none; border: 0; margin: 0; padding: 0; text-align: start; cursor: pointer }
.icon { flex: none; inline-size: 16px; block-size: 16px; color: var(--_ink-3); overflow: visible }
.icon-running { color: var(--_accent); animation: tc-turn 1.1s linear infinite }
.icon-failed { color: var(--_bad) }
.icon-question { color: var(--_warn) }
.stale .icon-running { color: var(--_ink-3); animation-play-state: paused }
@keyframes tc-turn { to { transform: rotate(1turn) } }
.button {
  display: inline-flex; align-items: center; gap: 8px; block-size: 32px; padding-inline: 12px; border-radius: 6px;
  border: 1px solid var(--_edge); font-weight: 500; color: var(--_ink); white-space: nowrap; transition: background var(--_press);
}
.button:hover { background: var(--_select) }
.button.primary { background: var(--_ink); border-color: var(--_ink); color: var(--_bg) }
@media (pointer: coarse) { .button { block-size: 44px } }
.sr { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap }
@media (prefers-reduced-motion: reduce) {
  *, ::before, ::after { animation: none !important; transition: none !important }
}
@media (forced-colors: active) {
  .icon { forced-color-adjust: none }
  .button.primary { forced-color-adjust: none }
}
`

/** @type {Map<string, CSSStyleSheet>} */
const sheets = new Map()

/** @param {string} css @returns {CSSStyleSheet} one sheet per text, shared by all who adopt it */
function sheet(css) {
  let made = sheets.get(css)
  if (!made) {
    made = new CSSStyleSheet()
    made.replaceSync(css)
    sheets.set(css, made)
  }
  return made
}

/**
 * Give a document or shadow root the tokens and its own rules; allowed under a Content-Security-Policy
 * without inline styles.
 *
 * @param {Document | ShadowRoot} root
 * @param {...string} css rules of the adopter's own, after the tokens
 */
export function adopt(root, ...css) {
  root.adoptedStyleSheets = [...root.adoptedStyleSheets, ...[TOKENS, ...css].map(sheet)]
}

/** The text of the shared sheet, for tests that compute the contrast of its pairs. */
export { TOKENS as tokens }
