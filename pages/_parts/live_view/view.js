// One mounted view: follows a run's event stream, draws, and tells Python once when the run has ended.

const views = new WeakMap()
const RETRY_MS = [500, 1000, 2000, 5000]
// The browser often shares its processor with the engine, and what it draws slows what is measured: on two cores a chart
// redrawn every 300 ms made each step 1.5 times as long. So drawing gets a small share of the time, whatever one costs here.
const DRAW_EVERY_MS = 300
const SAY_EVERY_MS = 900
const DRAW_SHARE = 0.04
const DRAW_AT_LEAST_EVERY_MS = 6000

class LiveView {
  constructor(root) {
    this.root = root
    this.part = (name) => root.querySelector(`.rl-${name}`)
    this.hidden = new Set()
    this.chosenScale = null
    this.drawing = Promise.resolve()
  }

  show(data, tell) {
    const { run: lastRun, words: lastWords } = this.data ?? {}
    this.data = data
    this.tell = tell
    this.hover = makeHover(data.words, data.limits, data.locale)
    this.label()
    if (data.run !== lastRun) this.start()
    else if (lastWords && JSON.stringify(lastWords) !== JSON.stringify(data.words)) this.start({ keepZoom: true })
    else this.paint()
  }

  label() {
    const { words } = this.data
    this.part("writing-label").textContent = words.writing
    this.part("writer").textContent = words.writer
    this.part("text").setAttribute("aria-label", words.writing)
    this.part("chart").setAttribute("aria-label", words.chart_label)
    this.part("scale").setAttribute("aria-label", words.scale)
    this.drawScale()
  }

  start({ keepZoom = false } = {}) {
    this.stop()
    this.seen = 0
    this.ended = false
    this.failures = 0
    this.drawMs = 0  // what has come by the time the chart is there is drawn at once
    this.pending = []
    this.unread = []
    this.kept = []
    if (!keepZoom) { this.zoomed = false; this.chosenScale = null }
    this.root.dataset.run = this.data.run ?? ""
    this.root.dataset.answers = this.data.answers
    this.part("prompt").textContent = ""
    this.part("output").textContent = ""
    this.status("idle", this.data.run ? this.data.words.opening : this.data.words.idle)
    this.progress(null)
    this.draw(() => this.clear())
    if (this.data.run) this.follow()
    if (this.data.live) this.bringIntoView()
  }

  // On a phone the controls fill the screen: whoever pressed Run wants to see what it does.
  bringIntoView() {
    if (this.root.getBoundingClientRect().top > 0.75 * window.innerHeight) this.root.scrollIntoView({ behavior: "smooth", block: "start" })
  }

  // ---- the stream -----------------------------------------------------------------------------

  follow() {
    const { base, run, locale } = this.data
    const source = new EventSource(`${base}/api/runs/${encodeURIComponent(run)}/stream?lang=${locale}`)
    this.source = source
    source.onmessage = (message) => { this.failures = 0; if (source === this.source) this.take(JSON.parse(message.data)) }
    source.onerror = () => { if (source === this.source && !this.ended) this.retry() }
  }

  // A stream starts over from the first step; `take` drops what is already drawn.
  retry() {
    this.source.close()
    const wait = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)]
    this.failures += 1
    this.status("waiting", this.data.words.reconnecting)
    this.timer = setTimeout(() => this.follow(), wait)
  }

  stop() {
    this.source?.close()
    clearTimeout(this.timer)
    clearTimeout(this.flushing)
    clearTimeout(this.saying)
    this.flushing = this.saying = null
  }

  take(event) {
    if (event.type === "prompt") this.part("prompt").textContent = event.prompt.text
    else if (event.type === "steps") this.takeSteps(event)
    else if (event.type === "end") this.finish(event)
    else {
      this.status(event.kind, [event.text, this.timeLeft(event)].filter(Boolean).join(" · "))
      this.progress(event.fraction)
    }
  }

  // How long a piece of work will still take, if it goes on as it has: said once there is something to go by.
  timeLeft({ fraction }) {
    if (typeof fraction !== "number") return (this.work = null)
    const at = performance.now()
    if (!this.work || fraction < this.work.fraction) this.work = { fraction, at, began: fraction }
    this.work.fraction = fraction
    const done = fraction - this.work.began
    const passed_s = (at - this.work.at) / 1000
    if (passed_s < 2 || done < 0.03) return null
    return fill(this.data.words.left, { seconds: this.hover.number(Math.max(1, (passed_s * (1 - fraction)) / done), 0) })
  }

  takeSteps(event) {
    const skip = Math.max(0, this.seen - event.first)
    const batch = Object.fromEntries(Object.entries(event).map(([key, value]) => [key, Array.isArray(value) ? value.slice(skip) : value]))
    if (!batch.index.length) return
    this.seen += batch.index.length
    this.kept.push(batch)
    this.pending.push(batch)
    this.unread.push(batch)
    this.saying ??= setTimeout(() => this.say(), SAY_EVERY_MS)
    this.flushing ??= setTimeout(() => this.flush(), this.pause())
  }

  // Text, count and bar: cheap to change, yet each change makes the browser lay the page out again.
  say() {
    clearTimeout(this.saying)
    this.saying = null
    const batches = this.unread
    this.unread = []
    if (!batches.length) return
    this.part("output").append(batches.flatMap((batch) => batch.text).join(""))
    const panel = this.part("text")
    if (this.data.live) panel.scrollTop = panel.scrollHeight
    this.progress(Math.min(1, this.seen / this.data.length))
    const time_ns = batches.at(-1).time_ns.at(-1)
    this.status("running", fill(this.data.words.running, { step: this.hover.number(this.seen, 0), length: this.hover.number(this.data.length, 0), time: this.hover.ms(time_ns) }))
  }

  pause() {
    return Math.min(DRAW_AT_LEAST_EVERY_MS, Math.max(DRAW_EVERY_MS, this.drawMs / DRAW_SHARE))
  }

  // What came since the last drawing goes on the chart in one go.
  flush() {
    clearTimeout(this.flushing)
    this.flushing = null
    const batches = this.pending
    this.pending = []
    if (batches.length) this.draw((plotly) => this.add(plotly, joined(batches)))
  }

  finish(event) {
    this.ended = true
    this.say()
    this.flush()
    this.stop()
    this.progress(null)
    this.status(event.kind, event.text)
    this.draw((plotly) => this.settle(plotly))
    if (this.data.live) this.tell(this.data.run)
  }

  // ---- words around the chart -----------------------------------------------------------------

  status(kind, text) {
    this.root.dataset.state = kind
    const slot = this.part("status-text")
    if (slot.textContent !== text) slot.textContent = text
  }

  progress(fraction) {
    const bar = this.part("bar")
    bar.hidden = fraction === null || fraction === undefined
    if (bar.hidden) return
    bar.setAttribute("aria-valuenow", Math.round(100 * fraction))
    bar.setAttribute("aria-label", this.data.words.progress)
    bar.firstElementChild.style.width = `${100 * fraction}%`
  }

  drawScale() {
    const group = this.part("scale")
    const pressed = this.scale ?? "linear"
    if (group.children.length && group.dataset.words === this.data.words.linear + this.data.words.log) {
      for (const button of group.children) button.setAttribute("aria-pressed", String(button.dataset.scale === pressed))
      return
    }
    group.dataset.words = this.data.words.linear + this.data.words.log
    group.replaceChildren(...["linear", "log"].map((scale) => {
      const button = document.createElement("button")
      button.type = "button"
      button.textContent = this.data.words[scale]
      button.dataset.scale = scale
      button.setAttribute("aria-pressed", String(scale === pressed))
      button.onclick = () => { this.chosenScale = scale; this.draw((plotly) => this.rescale(plotly)) }
      return button
    }))
  }

  drawLegend() {
    const { words, colours } = this.data
    const ink = inkOf(this.root)
    const shown = TRACES.filter((name) => this.has(name))
    this.part("legend").replaceChildren(...shown.map((name) => {
      const button = document.createElement("button")
      button.type = "button"
      button.title = words[`about_${name}`] ?? ""
      button.append(swatch(name, name === "expected" ? ink.expected : name === "roof" ? colours.floor : colours[name]), words[name])
      button.setAttribute("aria-pressed", String(!this.hidden.has(name)))
      button.onclick = () => this.toggle(name)
      return button
    }))
    if (this.flagged().size) this.part("legend").append(this.flagNote())
  }

  // Steps faster than they can be: ringed in the chart, and named beside the legend's buttons, for there is no line to hide.
  flagged() {
    return new Set(this.kept.flatMap((batch) => batch.index.filter((_, at) => batch.flags[at].some((flag) => flag !== "disturbed"))))
  }

  flagNote() {
    const note = document.createElement("span")
    note.className = "rl-flagged"
    note.title = this.data.words.about_flagged
    note.append(swatch("flagged", this.data.colours.floor), this.data.words.flagged)
    return note
  }

  has(name) {
    const trace = this.node?.data?.[TRACES.indexOf(name)]
    if (!trace) return false
    if (name === "prefill" || name === "decode" || name === "expected" || name === "roof" || name === "weights") return true
    if (name === "kv" && !this.has("window") && !this.has("latent")) return true
    return trace.y.some((value) => value)
  }

  toggle(name) {
    if (!this.hidden.delete(name)) this.hidden.add(name)
    this.draw((plotly) => plotly.restyle(this.node, { visible: !this.hidden.has(name) }, [TRACES.indexOf(name)]))
    this.drawLegend()
    this.part("legend").querySelectorAll("button")[TRACES.filter((each) => this.has(each)).indexOf(name)]?.focus()
  }

  // ---- the chart ------------------------------------------------------------------------------

  draw(action) {
    this.drawing = this.drawing
      .then(() => loadPlotly(this.data.plotly))
      .then((plotly) => this.root.isConnected && action(plotly))
      .catch((error) => { this.status("failed", this.data.words.no_chart); console.error(error) })
  }

  async clear() {
    const ink = inkOf(this.root)
    const node = this.part("chart")
    const kept = this.zoomed && node.layout ? { x: node.layout.xaxis.range, y: node.layout.yaxis.range, y2: node.layout.yaxis2.range } : null
    this.scale ??= "linear"
    const layout = layoutFor(this.data.words, ink, this.scale, this.data.length - 1)
    if (kept) { layout.xaxis.range = kept.x; layout.yaxis.range = kept.y; layout.yaxis2.range = kept.y2 }
    layout.uirevision = this.data.run
    await window.Plotly.react(node, tracesFor(this.data.colours, ink), layout, CONFIG)
    if (!this.node) {
      node.on("plotly_relayout", (change) => {
        if (this.ours) return
        if ("xaxis.range[0]" in change || "yaxis.range[0]" in change || "yaxis2.range[0]" in change) this.zoomed = true
        if (change["xaxis.autorange"] || change["yaxis.autorange"]) { this.zoomed = false; this.draw((plotly) => this.settle(plotly)) }
      })
    }
    this.node = node
    this.drawLegend()
  }

  async add(plotly, batch) {
    const started = performance.now()
    extend(plotly, this.node, gains(batch, this.data.words, this.hover))
    if (this.node.data[1].x.length < 40) await this.rescale(plotly)
    if (batch.flags.some((flags) => flags.length)) await this.ringFlagged(plotly)
    this.drawLegendWhenNew()
    this.drawMs = performance.now() - started
  }

  drawLegendWhenNew() {
    const shown = [...TRACES.filter((name) => this.has(name)), this.flagged().size > 0].join()
    if (shown !== this.shown) { this.shown = shown; this.drawLegend() }
  }

  // A long prefill would press the decode steps flat: then time goes on a logarithmic scale, unless the reader chose.
  async rescale(plotly) {
    const [prefill, decode] = [this.node.data[0].y, this.node.data[1].y]
    const typical = [...decode].sort((a, b) => a - b)[Math.floor(decode.length / 2)]
    const wanted = this.chosenScale ?? (typical && prefill[0] / typical > 6 ? "log" : "linear")
    if (wanted !== this.scale) {
      this.scale = wanted
      await this.relayout(plotly, { "yaxis.type": wanted, "yaxis.autorange": true })
    }
    this.drawScale()
  }

  async ringFlagged(plotly) {
    const flagged = this.flagged()
    for (const trace of [0, 1]) {
      const widths = this.node.data[trace].x.map((index) => (flagged.has(index) ? 2.5 : 0))
      await plotly.restyle(this.node, { "marker.line.width": [widths] }, [trace])
    }
  }

  // The run is over (or the reader let go of the zoom): the axis ends where the steps do.
  async settle(plotly) {
    if (this.zoomed || !this.node) return
    const last = this.ended ? Math.max(4, this.seen - 1) : Math.max(8, this.data.length - 1)
    await this.relayout(plotly, { "xaxis.range": [-1, last + 1], "yaxis.autorange": true, "yaxis2.autorange": true })
  }

  paint() {
    this.draw(async (plotly) => {
      if (!this.node) return
      const ink = inkOf(this.root)
      if (ink.text === this.painted?.text && ink.background === this.painted?.background) return
      this.painted = ink
      await this.relayout(plotly, {
        "font.color": ink.text, "xaxis.gridcolor": ink.grid, "yaxis.gridcolor": ink.grid, "yaxis2.gridcolor": ink.grid,
        "hoverlabel.bgcolor": ink.background, "hoverlabel.bordercolor": ink.grid, "hoverlabel.font.color": ink.text,
      })
      await plotly.restyle(this.node, { "line.color": ink.expected }, [TRACES.indexOf("expected")])
      this.drawLegend()
    })
  }

  async relayout(plotly, change) {
    this.ours = true
    try { await plotly.relayout(this.node, change) } finally { this.ours = false }
  }
}

function swatch(name, colour) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg")
  const [width, height] = [18, 12]
  svg.setAttribute("width", width)
  svg.setAttribute("height", height)
  svg.setAttribute("aria-hidden", "true")
  const shapes = {
    prefill: ["path", { d: "M9 1 L14 6 L9 11 L4 6 Z", fill: colour }],
    decode: ["circle", { cx: 9, cy: 6, r: 3.5, fill: colour }],
    expected: ["path", { d: "M0 6 H18", stroke: colour, "stroke-width": 2 }],
    roof: ["path", { d: "M0 6 H18", stroke: colour, "stroke-width": 2, "stroke-dasharray": "2 3" }],
    floor: ["path", { d: "M0 6 H18", stroke: colour, "stroke-width": 2, "stroke-dasharray": "6 4" }],
    flagged: ["circle", { cx: 9, cy: 6, r: 4.2, fill: "none", stroke: colour, "stroke-width": 2.2 }],
  }
  const [tag, attributes] = shapes[name] ?? ["rect", { x: 4, y: 1, width: 10, height: 10, rx: 2, fill: colour }]
  const shape = document.createElementNS(svg.namespaceURI, tag)
  for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value)
  svg.append(shape)
  return svg
}

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".rl-live")
  let view = views.get(root)
  if (!view) { view = new LiveView(root); views.set(root, view) }
  view.show(data, (run) => setTriggerValue("done", run))
  return whenGone(root, () => { view.stop(); if (view.node) window.Plotly?.purge(view.node); views.delete(root) })
}
