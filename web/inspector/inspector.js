// @ts-check
/** The inspector's page: the runs at the left, one run in the centre, its events at the right. */

import '../define.js'
import { Announcer, followEnd, make, setText, swapIcon } from '../dom.js'
import { isExpired, runDuration } from '../describe.js'
import { formatDuration } from '../labels.js'
import { tick } from '../ticker.js'
import { adopt } from '../tokens.js'
import { EventsPane } from './events.js'
import { Header } from './header.js'
import { loading, note, noRuns } from './notes.js'
import { RunsPane } from './runs.js'
import { Scrubber } from './scrubber.js'
import { Session } from './session.js'
import { CENTRE, EVENTS, HEADER, PAGE, RUNS, TIMELINE, WIDTHS } from './style.js'
import { Timeline } from './timeline.js'

/** @typedef {import('../run-state-element.js').RunStateElement} RunStateElement */

const BASE = new URL('../..', import.meta.url).href.replace(/\/$/, '')
const VIEWS = ['Calls', 'Timeline', 'Events']
/** Room for a list beside the run. */
const WIDE = matchMedia('(width >= 37.5rem)')
/** A reconnection quicker than this is nobody's business. */
const LOST_AFTER = 1500
/** How long an answer such as "Copied" stands. */
const SAID = 1400

/** @param {string} id */
const at = (id) => /** @type {HTMLElement} */ (document.getElementById(id))

class Inspector {
  /** @type {Session | undefined} */
  #session
  /** @type {number | undefined} */
  #frame
  /** @type {number | undefined} */
  #latency
  /** When the list will be asked for again, if it couldn't be had. @type {number | undefined} */
  #retryAt
  /** @type {string | undefined} */
  #refusal
  /** Why what the address names can't be a run. @type {string | undefined} */
  #invalid
  /** When the connection was lost: the clocks stand there. @type {number | undefined} */
  #stopped
  #listed = false
  #skew = 0

  constructor() {
    adopt(document, PAGE, HEADER, RUNS, CENTRE, TIMELINE, EVENTS, WIDTHS)
    // Until the rules were there it would have been seen.
    at('title').hidden = false
    this.announcer = new Announcer(document.body)
    this.list = /** @type {RunStateElement} */ (document.createElement('run-state'))
    this.end = make('div', { id: 'end', hidden: '' })
    this.endIcon = make('span', { class: 'at' })
    this.endText = make('span')
    this.end.append(this.endIcon, this.endText)
    this.about = at('about')
    this.about.classList.add('scroll')
    this.calls = at('calls')
    this.calls.classList.add('scroll')
    this.calls.tabIndex = -1
    this.follow = followEnd(this.calls)
    this.calls.append(this.list, this.end)

    this.header = new Header(at('header'), at('strip'), {
      home: () => this.open(undefined, { push: true }),
      copyId: () => this.#copy(this.#session?.run ?? '', 'Copied'),
      copyCurl: () => this.#copy(`curl -N '${BASE}/runs/${this.#session?.run}/events'`, 'Copied'),
      showEvents: () => this.#showEvents(true),
      tryNow: () => {
        this.runs.ask()
        this.#session?.stream.reconnect()
      },
    })
    this.runs = new RunsPane(at('runs'), BASE, {
      listed: (runs) => this.#haveRuns(runs),
      reached: (latency, skew) => {
        this.#latency = latency
        this.#skew = skew
        if (this.#retryAt !== undefined) this.#session?.stream.reconnect()
        this.#retryAt = this.#refusal = undefined
        this.refresh()
      },
      lost: (retryAt) => {
        this.#retryAt = retryAt
        this.refresh()
      },
      refused: (reason) => {
        this.#refusal = reason
        this.refresh()
      },
      chosen: (run) => this.open(run, { push: true }),
    }, new AbortController().signal)
    this.timeline = new Timeline(at('timeline'), (key) => this.#reveal(key))
    this.events = new EventsPane(at('events'), {
      chosen: ({ event }) => event.call && this.#reveal(event.call.key, false),
      closed: () => this.#showEvents(false),
      copy: (text, said) => this.#copy(text, said),
    })
    this.scrubber = new Scrubber(at('scrubber'), {
      moved: (count) => this.#session?.move(count),
      toggled: () => this.#session?.toggle(),
    })
    this.#tabs()
    this.#showEvents(localStorage.getItem('toolcast.events') !== 'closed')
    addEventListener('popstate', () => this.#fromAddress())
    document.addEventListener('visibilitychange', () => this.refresh())
    tick(() => this.#beat(), true)
    this.#fromAddress()
    this.runs.ask()
  }

  #fromAddress() {
    const query = new URLSearchParams(location.search)
    const hash = new URLSearchParams(location.hash.slice(1))
    this.open(query.get('run') ?? hash.get('run') ?? undefined, { at: query.get('at') ?? undefined })
  }

  /**
   * Show a run, or the list alone.
   *
   * @param {string | undefined} run
   * @param {{ push?: boolean, at?: string }} [how] `push`: as a step of the browser's history; `at`: a position
   */
  open(run, { push = false, at: position } = {}) {
    if (push) history.pushState(null, '', run ? `?run=${encodeURIComponent(run)}` : location.pathname)
    this.#session?.close()
    this.#session = this.#invalid = undefined
    try {
      if (run) this.#session = new Session(BASE, run, position, () => this.refresh())
    } catch (error) {
      this.#invalid = /** @type {Error} */ (error).message
    }
    this.runs.select(run)
    this.header.name(this.#session?.run)
    this.list.state = undefined
    this.calls.scrollTop = 0
    if (!run && this.#listed) this.#haveRuns(this.runs.runs)
    this.refresh()
  }

  /** @param {import('./runs.js').Run[]} runs */
  #haveRuns(runs) {
    this.#listed = true
    if (!this.#session && !this.#invalid && runs.length && WIDE.matches) this.open(runs[0].run)
    this.refresh()
  }

  refresh() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = undefined
      this.#render()
    })
  }

  #render() {
    const session = this.#session
    this.#trouble()
    const state = session?.ready ? session.state : undefined
    const about = this.#about(state)
    this.#note(about)
    const drawn = Boolean(state) && !about
    at('timeline').hidden = this.calls.hidden = !drawn
    const bare = !state || (about && about[0] !== 'idle')
    for (const id of ['scrubber', 'events', 'tabs']) at(id).hidden = Boolean(bare)
    document.body.classList.toggle('no-run', Boolean(bare && about))
    document.body.dataset.page = session || this.#invalid ? 'run' : about ? 'none' : 'runs'
    const title = session ? state?.title ?? session.run : undefined
    document.title = title ? `${title} · toolcast` : 'toolcast'
    setText(at('title'), title ?? 'toolcast')
    if (!session || !state || bare) {
      this.end.hidden = true
      return
    }

    const before = this.list.state
    const length = before ? before.calls.length : session.ended ? Infinity : 0
    const wasHidden = this.end.hidden
    const { now } = this
    this.list.silent = session.past
    this.list.skew = this.#skew
    this.list.frozen = session.past || this.#stopped ? now : undefined
    this.list.phase = this.#offline ? 'lost' : 'idle'
    this.list.state = state
    if (state.error) this.runs.errors.set(session.run, state.error.message)
    this.timeline.show(session.lanes, now)
    this.events.follow(session.history.entries)
    this.events.cursor(session.count)
    this.scrubber.show({
      count: session.count, length: session.history.length, past: session.past, moving: session.moving,
      ended: session.ended, type: session.history.entries[session.count - 1]?.event.type,
    })
    this.#ending(state)
    const grown = state.calls.length > length || (before && wasHidden && !this.end.hidden)
    if (grown && !session.past) requestAnimationFrame(this.follow)
  }

  /** Milliseconds since 1970 on the agent's clock, where the page stands. */
  get now() {
    return this.#session?.pastTime ?? (this.#stopped ?? Date.now()) - this.#skew
  }

  get #offline() {
    const session = this.#session
    return this.#retryAt !== undefined || (session?.lostAt !== undefined && Date.now() - session.lostAt > LOST_AFTER)
  }

  #trouble() {
    const session = this.#session
    const offline = this.#offline
    document.body.classList.toggle('stale', offline)
    this.#stopped = offline ? this.#stopped ?? Date.now() : undefined
    if (this.#refusal) this.header.trouble(this.#refusal)
    else if (offline) this.header.trouble('Gateway unreachable.', session?.stream.retryAt ?? this.#retryAt)
    else this.header.trouble(undefined)
    if (!session) return
    const { state, stream } = session
    const refused = Boolean(stream.error?.fatal)
    this.header.pill.hidden = refused
    this.header.status(state.status, runDuration(state, this.now))
    const word = offline ? 'Offline' : refused ? 'Refused' : session.ended ? 'Ended' : session.past ? 'Paused' : 'Live'
    this.header.connection(word, word === 'Live', this.#latency)
  }

  /** What stands in the place of the calls, as a key and what makes it. @param {Session['state'] | undefined} state @returns {[string, () => Node] | undefined} */
  #about(state) {
    const session = this.#session
    if (this.#invalid) return ['invalid', () => note('denied', 'This is no run', this.#invalid)]
    if (!session) return this.#listed && !this.runs.runs.length ? ['none', () => noRuns(BASE, (text, said) => this.#copy(text, said))] : undefined
    const { stream } = session
    if (stream.error?.fatal) return ['refused', () => note('denied', 'This run can’t be shown', stream.error?.message)]
    if (!state) return session.slow ? ['loading', loading] : undefined
    if (stream.ended === 'absent') return ['absent', () => note('cancelled', 'Nobody has published this run', 'Check its id, or open the page before the agent starts and leave it open.')]
    if (stream.ended === 'deleted') return ['deleted', () => note('cancelled', 'This run was deleted')]
    if (isExpired(state)) return ['expired', () => note('completed', 'The log of this run is no longer kept', 'What remains is how it ended and when.')]
    if (state.status === 'waiting') return session.history.length ? undefined : ['waiting', () => note('identified', 'Waiting for the agent')]
    if (state.status === 'completed' && !state.calls.length) {
      const ms = runDuration(state)
      return ['idle', () => note('completed', `Finished without using a tool${ms === undefined ? '' : ` · ${formatDuration(ms)}`}`)]
    }

    return undefined
  }

  /** @param {[string, () => Node] | undefined} about */
  #note(about) {
    const key = about ? `${this.#session?.run} ${about[0]}` : ''
    this.about.hidden = !about
    if (this.about.dataset.key === key) return
    this.about.dataset.key = key
    this.about.replaceChildren(...(about ? [about[1]()] : []))
  }

  /** The last line of the ledger: how the run ended. @param {Session['state']} state */
  #ending(state) {
    const closed = state.calls.filter((call) => call.state === 'cancelled').length
    const result = typeof state.result === 'string' ? state.result : state.result && JSON.stringify(state.result)
    const failed = state.status === 'failed'
    const text = failed ? [state.error?.message ?? 'The run failed.', closed ? `${closed} ${closed === 1 ? 'call was' : 'calls were'} closed.` : ''].filter(Boolean).join(' ')
      : state.status === 'cancelled' ? 'The run was stopped.' : state.status === 'completed' ? result : undefined
    this.end.hidden = !text
    if (!text) return
    swapIcon(this.endIcon, failed ? 'failed' : state.status)
    this.endText.classList.toggle('bad', failed)
    setText(this.endText, text)
  }

  #beat() {
    const session = this.#session
    this.#trouble()
    if (!this.#offline) this.runs.beat()
    if (!session?.ready || session.past || session.ended || this.#offline) return
    this.timeline.beat(this.now)
  }

  /** @param {string} key @param {boolean} [focus] */
  #reveal(key, focus = true) {
    this.#view('calls')
    this.list.reveal(key, focus)
  }

  /** @param {boolean} shown */
  #showEvents(shown) {
    document.body.classList.toggle('no-events', !shown)
    this.header.panel.hidden = shown
    localStorage.setItem('toolcast.events', shown ? 'open' : 'closed')
  }

  #tabs() {
    const root = at('tabs')
    this.tabs = VIEWS.map((name) => {
      const tab = make('button', { type: 'button', role: 'tab', 'data-tab': name.toLowerCase() }, name)
      tab.addEventListener('click', () => this.#view(name.toLowerCase()))
      return tab
    })
    root.append(...this.tabs)
    root.addEventListener('keydown', (event) => {
      const by = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0
      const shown = this.tabs?.filter((tab) => tab.offsetParent) ?? []
      const next = shown[(shown.findIndex((tab) => tab === event.target) + by + shown.length) % shown.length]
      if (!by || !next) return
      next.focus()
      next.click()
    })
    this.#view('calls')
  }

  /** @param {string} view */
  #view(view) {
    document.body.dataset.view = view
    for (const tab of this.tabs ?? []) {
      const on = tab.dataset.tab === view
      tab.setAttribute('aria-selected', String(on))
      tab.tabIndex = on ? 0 : -1
    }
  }

  /** @param {string} text @param {string} said */
  async #copy(text, said) {
    const button = document.activeElement instanceof HTMLElement ? document.activeElement : document.body
    try {
      await navigator.clipboard.writeText(text)
    } catch {
      // Outside a secure context there is no clipboard but this one.
      const area = make('textarea', { class: 'sr', 'aria-hidden': 'true' }, text)
      document.body.append(area)
      area.select()
      document.execCommand('copy')
      area.remove()
      button.focus()
    }
    this.announcer.say(said)
    button.dataset.said = said
    setTimeout(() => delete button.dataset.said, SAID)
  }
}

new Inspector()
