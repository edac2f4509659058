// @ts-check
/** The inspector's rules. Colours and durations come from the tokens; sizes from a grid of 4 px, in rem. */

export const PAGE = `
body {
  margin: 0; block-size: 100vh; block-size: 100dvh; overflow: hidden; background: var(--_bg); color: var(--_ink-2);
  font: .875rem/1.25rem ui-sans-serif, system-ui, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
  display: grid; grid-template: "header header" 3rem "strip strip" auto "runs run" minmax(0, 1fr) / 16.5rem minmax(0, 1fr);
}
#header { grid-area: header } #strip { grid-area: strip } #runs { grid-area: runs } #run { grid-area: run }
.scroll { overflow: auto; scrollbar-width: thin; scrollbar-color: var(--_line) transparent; overscroll-behavior: contain }
.at { display: flex; flex: none }
.label { font-size: .75rem; line-height: 1rem; color: var(--_ink-3); font-weight: 400; margin: 0 }
.mono { font: .78125rem/1.25rem var(--_mono) }
.link { border-radius: 3px; font-size: .8125rem; line-height: 1.25rem; color: var(--_ink-2); padding: .375rem .5rem; margin-inline: -.5rem; border-radius: 6px; white-space: nowrap; transition: background var(--_press) }
.link:hover { background: var(--_select) }
.link:disabled { cursor: default; background: none }
:root { --tool: 1.75rem }
.tool { display: inline-grid; place-items: center; inline-size: var(--tool); block-size: var(--tool); border-radius: 6px; color: var(--_ink-3); transition: background var(--_press) }
.tool:hover { background: var(--_select); color: var(--_ink) }
.tool .icon { color: inherit }
:dir(rtl) .icon-back, :dir(rtl) .icon-play { transform: scaleX(-1) }
[data-said] { position: relative }
[data-said]::after {
  content: attr(data-said); position: absolute; z-index: 2; inset-block-start: calc(100% + .25rem); inset-inline-end: 0; padding: .125rem .5rem;
  border-radius: 6px; background: var(--_ink); color: var(--_bg); font: .75rem/1.25rem system-ui, sans-serif; white-space: nowrap; pointer-events: none;
}
.id[data-said]::after { inset-inline: 0 auto }
@media (pointer: coarse) { :root { --tool: 2.75rem } .link { padding-block: .75rem } }
`

export const HEADER = `
#header { display: flex; align-items: center; gap: .75rem; padding-inline: 1rem; background: var(--_surface); border-block-end: 1px solid var(--_line); min-inline-size: 0 }
#header .wordmark { font-weight: 600; color: var(--_ink); text-decoration: none; border-radius: 3px }
#header .slash { color: var(--_ink-3) }
#header .tool { flex: none }
#header .back { display: none; margin-inline: calc(.25rem - var(--tool) / 2) calc(.5rem - var(--tool) / 2); color: var(--_ink) }
.id { display: flex; min-inline-size: 0; color: var(--_ink); border-radius: 3px; white-space: nowrap }
.id:hover { text-decoration: underline; text-underline-offset: 3px; text-decoration-color: var(--_edge) }
.id-start { overflow: hidden; text-overflow: ellipsis; min-inline-size: 2ch }
.id-end { flex: none }
.pill { display: inline-flex; flex: 0 1 auto; min-inline-size: 1.75rem; align-items: center; gap: .375rem; block-size: 1.5rem; padding-inline: .5rem .625rem; border-radius: 1rem; border: 1px solid transparent; font-size: .75rem; line-height: 1rem; color: var(--_ink-2); background: var(--_select); white-space: nowrap }
.pill .says { overflow: hidden; text-overflow: ellipsis }
.pill .icon { inline-size: .75rem; block-size: .75rem }
.pill[data-status="running"] { color: var(--_accent); background: var(--_accent-soft) }
.pill[data-status="interrupted"] { color: var(--_warn); background: var(--_warn-soft) }
.pill[data-status="failed"] { color: var(--_bad); background: var(--_bad-soft) }
.stale .pill[data-status="running"] { color: var(--_ink-3); background: var(--_select) }
.live { min-inline-size: 7.5rem; display: inline-flex; flex: none; margin-inline-start: auto; align-items: center; gap: .25rem; font-size: .75rem; line-height: 1rem; color: var(--_ink-2); white-space: nowrap }
.live .icon { color: var(--_ink-3) }
.live[data-on] .icon { color: var(--_accent) }
.live .latency { color: var(--_ink-3); min-inline-size: 7ch }
#header .link { margin-inline: .5rem -.5rem }
#header .menu { display: none }
#more { margin: 0; inset: 2.75rem .5rem auto auto; padding: .25rem; border: 1px solid var(--_line); border-radius: 8px; background: var(--_surface); color: inherit; box-shadow: var(--_shade) }
#more:dir(rtl) { inset: 2.75rem auto auto .5rem }
#more button { display: block; inline-size: 100%; padding: .5rem .75rem; border-radius: 6px; font-size: .8125rem }
#more button:hover { background: var(--_select) }
#strip { display: flex; align-items: center; gap: .375rem; min-block-size: 2rem; padding-inline: 1rem; background: var(--_select); border-block-end: 1px solid var(--_line); font-size: .8125rem; color: var(--_ink-2) }
#strip button { color: var(--_accent); border-radius: 3px }
#strip button:hover { text-decoration: underline }
@media (pointer: coarse) { #strip { min-block-size: 2.75rem } #strip button { min-block-size: 2.75rem } }
`

export const RUNS = `
#runs { display: flex; flex-direction: column; min-block-size: 0; border-inline-end: 1px solid var(--_line) }
#runs > .label { padding: 1.25rem 1rem .5rem }
#runs .scroll { flex: 1 }
#runs ol { position: relative; list-style: none; margin: 0; padding: 0 .5rem }
#runs .room { position: absolute; inline-size: 1px; inset-block-start: 0; inset-inline-start: 0 }
#runs li { position: absolute; inset-inline: .5rem; inset-block-start: 0; block-size: 3.5rem }
#runs a { display: grid; grid-template: "icon title when" 1.25rem "icon sub sub" 1rem / 1rem minmax(0, 1fr) auto; gap: .25rem .5rem; padding: .5rem; border-radius: 8px; color: inherit; text-decoration: none; transition: background var(--_press) }
#runs a:hover, #runs a[aria-current] { background: var(--_select) }
#runs .at { grid-area: icon; padding-block-start: .125rem; display: flex; align-self: start }
#runs .name { grid-area: title; color: var(--_ink); overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
#runs a[aria-current] .name { font-weight: 500 }
#runs .when { grid-area: when; font-size: .75rem; color: var(--_ink-3) }
#runs :is(.name, .sub) { justify-self: start; max-inline-size: 100% }
#runs :is(.name, .sub, .when), .lane .who, .tick, .latency { unicode-bidi: plaintext }
@media (forced-colors: active) { #runs a[aria-current] { outline: 1px solid } }
#runs .sub { grid-area: sub; font-size: .75rem; line-height: 1rem; color: var(--_ink-3); overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
`

export const CENTRE = `
#run {
  min-block-size: 0; min-inline-size: 0; background: var(--_surface);
  display: grid; grid-template: "tabs events" auto "timeline events" auto "calls events" minmax(0, 1fr) "scrubber events" auto / minmax(0, 1fr) 22rem;
}
:is(.no-events, .no-run) #run { grid-template-columns: minmax(0, 1fr) 0 }
:is(.no-events, .no-run) #events { display: none }
#about { grid-row: 2 / 4; grid-column: 1; min-block-size: 0; min-inline-size: 0; padding-inline: .75rem }
#tabs { grid-area: tabs } #timeline { grid-area: timeline } #calls { grid-area: calls } #events { grid-area: events } #scrubber { grid-area: scrubber }
#tabs { display: none; border-block-end: 1px solid var(--_line); padding-inline: .75rem; gap: .25rem }
#tabs button { padding-inline: .75rem; block-size: 2.5rem; color: var(--_ink-2); position: relative }
#tabs button[aria-selected="true"] { color: var(--_ink) }
#tabs button[aria-selected="true"]::after { content: ""; position: absolute; inset-inline: 0; inset-block-end: -1px; block-size: 2px; background: var(--_ink) }
#tabs button:focus-visible { outline-offset: -2px }
#calls { min-block-size: 0; padding: .5rem .75rem 1rem }
#calls run-state { min-inline-size: 0 }
#end { display: flex; gap: .625rem; padding: .5rem .75rem; color: var(--_ink-2); max-inline-size: 68ch; overflow-wrap: anywhere; white-space: pre-line }
#end .at { display: flex; flex: none; padding-block-start: .125rem }
#end .bad { color: var(--_bad) }
.note { display: grid; gap: .75rem; justify-items: start; align-content: start; max-inline-size: 20rem; margin: 15vh auto 0; color: var(--_ink-2) }
.note.wide { max-inline-size: 30rem }
.note h2 { font-size: 1.25rem; line-height: 1.75rem; font-weight: 500; color: var(--_ink); margin: 0 }
.note p { margin: 0 }
.note .line { display: flex; gap: .625rem; align-items: center }
.code { display: flex; inline-size: 100%; align-items: start; gap: .5rem; border-radius: 8px; background: var(--_sunken); padding: .5rem .5rem .5rem .75rem; color: var(--_ink) }
.code code { flex: 1; min-inline-size: 0; padding-block: .25rem; overflow-wrap: anywhere; white-space: pre-wrap; font: .78125rem/1.25rem var(--_mono) }
.ghost { display: grid; gap: 2px; padding: .25rem .75rem }
.ghost div { display: flex; align-items: center; gap: .625rem; block-size: var(--_row) }
.ghost div::before { content: ""; inline-size: 1rem; block-size: 1rem; border-radius: 50%; background: var(--_select) }
.ghost div::after { content: ""; inline-size: 40%; block-size: .625rem; border-radius: 3px; background: var(--_select) }
.ghost div:nth-child(2)::after { inline-size: 28% }
.ghost div:nth-child(3)::after { inline-size: 34% }
#scrubber { display: flex; align-items: center; gap: .75rem; block-size: 2.75rem; padding-inline: 1.125rem 1.5rem; border-block-start: 1px solid var(--_line); box-sizing: content-box; padding-block-end: env(safe-area-inset-bottom) }
#scrubber .tool { color: var(--_ink-2); flex: none }
#scrubber .count { flex: none; min-inline-size: 9ch; color: var(--_ink); text-align: end; white-space: nowrap }
#scrubber .link { flex: none; min-inline-size: 3.5rem; text-align: end; margin-inline: 0 -.5rem; color: var(--_ink-3) }
#scrubber .link[aria-pressed="true"] { color: var(--_ink-2) }
#scrubber .link.past { color: var(--_accent) }
input[type="range"] { flex: 1; min-inline-size: 4rem; block-size: 1.5rem; margin: 0; appearance: none; background: none; border-radius: 6px; cursor: pointer }
input[type="range"]::-webkit-slider-runnable-track { block-size: 4px; border-radius: 2px; background: linear-gradient(to right, var(--_accent) var(--fill, 0%), var(--_track) 0) }
input[type="range"]:dir(rtl)::-webkit-slider-runnable-track { background: linear-gradient(to left, var(--_accent) var(--fill, 0%), var(--_track) 0) }
input[type="range"]::-webkit-slider-thumb { appearance: none; inline-size: 14px; block-size: 14px; margin-block-start: -5px; border-radius: 50%; border: 2px solid var(--_accent); background: var(--_surface) }
input[type="range"]::-moz-range-track { block-size: 4px; border-radius: 2px; background: var(--_line) }
input[type="range"]::-moz-range-progress { block-size: 4px; border-radius: 2px; background: var(--_accent) }
input[type="range"]::-moz-range-thumb { box-sizing: border-box; inline-size: 14px; block-size: 14px; border-radius: 50%; border: 2px solid var(--_accent); background: var(--_surface) }
input[type="range"]:focus-visible { outline: 0 }
input[type="range"]:focus-visible::-webkit-slider-thumb { outline: 2px solid var(--_accent); outline-offset: 2px }
input[type="range"]:focus-visible::-moz-range-thumb { outline: 2px solid var(--_accent); outline-offset: 2px }
@media (forced-colors: active) { input[type="range"] { forced-color-adjust: none } }
`

export const TIMELINE = `
#timeline { position: relative; block-size: min(40vh - 2.25rem, 3.0625rem + 1.5rem * var(--lanes, 7)); display: grid; grid-template-rows: 2rem minmax(0, 1fr); border-block-end: 1px solid var(--_line); --gutter: 10rem }
#timeline[hidden] { display: none }
#timeline .axis { position: relative; margin-inline: 1.5rem }
#timeline .axis .link { font-size: .75rem; padding-block: .25rem; margin-block-start: .375rem; color: var(--_accent) }
#timeline .plot { position: absolute; inset-block: 0 1rem; inset-inline-start: 0; pointer-events: none }
.tick { position: absolute; inset-block: 0; inset-inline-start: 0; font-size: .75rem; line-height: 1rem; color: var(--_ink-3); padding-block-start: .75rem; white-space: nowrap }
.tick::after { content: ""; position: absolute; inset-inline-start: 0; inset-block: 2rem 0; border-inline-start: 1px solid var(--_line) }
#timeline .lanes { position: relative; padding-block-end: 1rem; scrollbar-gutter: stable; touch-action: pan-y; user-select: none; -webkit-user-select: none }
.lane { position: absolute; inset-block-start: 0; inset-inline: 1.5rem; inline-size: auto; display: grid; grid-template-columns: var(--gutter) minmax(0, 1fr); gap: .5rem; block-size: 1.5rem; align-items: center; border-radius: 3px; font-size: .8125rem; line-height: 1.5rem; color: var(--_ink-2) }
.lane.ruler { visibility: hidden }
.lane:focus-visible { outline-offset: -2px }
.lane .who { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; padding-inline-start: calc(.75rem * var(--depth, 0)) }
.lane:hover .who { color: var(--_ink) }
.track { position: relative; block-size: 100%; overflow: hidden; overflow: clip; overflow-clip-margin: 2px }
.bar { position: absolute; inset-block: calc(50% - 5px) auto; inset-inline-start: 0; block-size: 10px; border-radius: 3px; background: var(--_ink-3) }
.bar[data-kind="identified"] { background: none; border: 1px solid var(--_edge) }
.bar.first { border-start-end-radius: 0; border-end-end-radius: 0; border-inline-end: 0 }
.bar[data-kind="running"] { background: var(--_accent); border-start-end-radius: 0; border-end-end-radius: 0 }
.now { position: absolute; inset-block: 0; inset-inline-start: -1px; border-inline-start: 1px solid var(--_accent) }
.stale .now { border-color: var(--_edge) }
.stale .bar[data-kind="running"] { background: var(--_edge) }
.bar[data-kind="failed"] { background: var(--_bad) }
.cross {
  position: absolute; inset-block-start: calc(50% - 4px); inset-inline-start: 4px; inline-size: 8px; block-size: 8px; color: var(--_bad);
  background: linear-gradient(45deg, transparent 45%, currentColor 0 55%, transparent 0), linear-gradient(-45deg, transparent 45%, currentColor 0 55%, transparent 0);
}
.bar[data-kind="waiting"] { border: 1px solid var(--_warn); background: repeating-linear-gradient(-45deg, var(--_warn) 0 2px, transparent 2px 5px) }
.bar[data-kind="cancelled"] { background: none; border: 1px dashed var(--_ink-3) }
.zoom { position: absolute; inset-block: 0; inset-inline-start: 0; background: var(--_accent-soft); border-inline: 1px solid var(--_accent); opacity: .6; pointer-events: none }
#tip { position: fixed; inset: 0 auto auto 0; z-index: 1; max-inline-size: min(20rem, 100vw - 1rem); padding: .5rem .75rem; border-radius: 8px; border: 1px solid var(--_line); background: var(--_surface); box-shadow: var(--_shade); font-size: .75rem; line-height: 1rem; pointer-events: none }
#tip strong { display: block; font-weight: 500; color: var(--_ink); margin-block-end: .25rem; overflow-wrap: anywhere }
#tip dl { display: grid; grid-template-columns: auto auto; gap: 0 .75rem; margin: 0; justify-content: start }
#tip dt { color: var(--_ink-3) } #tip dd { margin: 0; text-align: end; color: var(--_ink-2) }
@media (forced-colors: active) { .bar, .cross { forced-color-adjust: none } #tip { border: 1px solid } }
`

export const EVENTS = `
#events { display: flex; flex-direction: column; min-block-size: 0; min-inline-size: 0; background: var(--_bg); border-inline-start: 1px solid var(--_line) }
#events .head { flex: none; display: flex; align-items: center; gap: .25rem; padding: .375rem .5rem .25rem 1rem; min-block-size: 2.25rem }
#events .head:dir(rtl) { padding-inline: 1rem .5rem }
#events .filter { flex: 1; min-inline-size: 0; display: flex; align-items: center; gap: .375rem; padding-inline: .5rem; margin-inline-start: .5rem; block-size: 1.75rem; border-radius: 6px; border: 1px solid transparent }
#events .filter:hover, #events .filter:focus-within { background: var(--_surface); border-color: var(--_edge) }
#events .filter .icon { inline-size: .875rem; block-size: .875rem }
#events input { flex: 1; min-inline-size: 0; font: inherit; font-size: .75rem; color: var(--_ink); background: none; border: 0; padding: 0; outline: 0 }
#events .filter:focus-within { outline: 2px solid var(--_accent); outline-offset: -1px }
#events input::placeholder { color: var(--_ink-3); opacity: 1 }
#events .list { flex: 1; padding-block-end: 1rem }
.batch { content-visibility: auto; contain-intrinsic-size: auto calc(1.5rem * var(--n)) }
.event { display: grid; grid-template-columns: 3.75rem minmax(0, 1fr) auto; gap: .75rem; inline-size: 100%; min-block-size: 1.5rem; padding-inline: 1rem; align-items: center; font: .75rem/1rem var(--_mono); color: var(--_ink); }
.event:hover, .event[aria-expanded="true"] { background: var(--_select) }
.event:focus-visible { outline-offset: -2px }
.event .clock, .event .seq { color: var(--_ink-3) }
.event .type { overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.event[data-tone="bad"] .type { color: var(--_bad) }
.event[data-tone="warn"] .type { color: var(--_warn) }
.event.later .type { color: var(--_ink-3) }
.event.here { box-shadow: inset 2px 0 var(--_accent) }
.raw { margin: .25rem 1rem .5rem; padding: .5rem .75rem; border-radius: 8px; background: var(--_sunken); color: var(--_ink); font: .75rem/1.125rem var(--_mono); white-space: pre-wrap; overflow-wrap: anywhere; max-block-size: 15rem }
#events .none { padding: .25rem 1rem; font-size: .8125rem; color: var(--_ink-3) }
@media (pointer: coarse) { .event { min-block-size: 2.75rem } .batch { contain-intrinsic-size: auto calc(2.75rem * var(--n)) } }
`

/** Below the first width the events are a tab; below the second there is one pane, and the list is a page of its own. */
export const WIDTHS = `
@media (width < 73.5rem) {
  body { grid-template-columns: 14.5rem minmax(0, 1fr) }
  #run, :is(.no-events, .no-run) #run { grid-template: "tabs" auto "timeline" auto "calls" minmax(0, 1fr) "scrubber" auto / minmax(0, 1fr) }
  #tabs { display: flex }
  #timeline { --gutter: 8rem }
  #tabs [data-tab="timeline"], #header .panel, #events .close { display: none }
  #events, .no-events #events { display: none; border: 0; background: none; grid-row: 2 / 4; grid-column: 1 }
  [data-view="events"] #events { display: flex }
  [data-view="events"] :is(#timeline, #calls) { display: none }
}
@media (width < 37.5rem) {
  body { grid-template: "header" 3rem "strip" auto "main" minmax(0, 1fr) / minmax(0, 1fr) }
  #runs, #run { grid-area: main }
  #runs { border: 0 }
  [data-page="runs"] #run, body:not([data-page="runs"]) #runs { display: none }
  [data-page="run"] #header :is(.wordmark, .slash) { display: none }
  [data-page="run"] #header .back { display: inline-grid }
  [data-page="run"] #header .menu { display: inline-grid; margin-inline-end: -.75rem }
  #header { padding-inline: .75rem; gap: .5rem }
  #header .link, .live .latency { display: none }
  .live { min-inline-size: 3.75rem }
  .id { flex: none; max-inline-size: 9ch }
  #tabs { padding-inline: .75rem }
  #tabs button { block-size: 2.75rem }
  #tabs [data-tab="timeline"] { display: block }
  #calls { padding: .25rem 0 1rem }
  run-state::part(call), run-state::part(row) { border-radius: 0 }
  #scrubber { padding-inline: .375rem .75rem; gap: .5rem }
  #scrubber .link { margin-inline-end: 0 }
  #timeline { block-size: auto; border: 0; min-block-size: 0; grid-row: 2 / 4; grid-column: 1 }
  #timeline .axis { margin-inline: .75rem }
  #timeline .axis .link { float: inline-end }
  .lane { inset-inline: .75rem; grid-template: 1rem 1rem / minmax(0, 1fr); block-size: 2.25rem; gap: 0; line-height: 1rem; align-content: center }
  [data-view="timeline"] #calls, body:not([data-view="timeline"]) #timeline { display: none }
  .note { margin-inline: 1rem; max-inline-size: none }
}
@media (width < 20.5rem) { .pill .text-more { display: none } }
`
