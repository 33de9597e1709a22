// A run replayed: buttons, arrow keys, a slider and play move one step marker; everything else is drawn from it.

const PLAY_MS = 900
const MAX_STRIP = 400
const replays = new WeakMap()
const visible = (piece) => piece.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅"

class Replay {
  constructor(parent) {
    this.parent = parent
    this.opened = null
    this.matrix = null
    this.onKey = (event) => this.key(event)
    document.addEventListener("keydown", this.onKey)
  }

  get root() { return this.parent.querySelector(".rr") }
  get steps() { return this.data.columns.phase.length }

  show(data) {
    const told = JSON.stringify(data)
    if (told === this.told && this.root.childElementCount) return
    const sameRun = this.data?.run === data.run
    this.told = told
    this.data = data
    this.say = sayer(data.locale)
    if (!sameRun) { this.stop(); this.at = data.at; this.matrix = null }
    this.matrix ??= (data.matrices.find(({ name }) => name.includes("gate_up")) ?? data.matrices[0])?.name ?? null
    this.build()
    this.draw()
  }

  // ---- moving ---------------------------------------------------------------------------------

  go(to) {
    this.at = Math.min(Math.max(to, 0), this.steps - 1)
    if (this.at === this.steps - 1) this.stop()
    const address = new URL(window.location.href)
    address.searchParams.set("at", String(this.at + 1))
    window.history.replaceState(window.history.state, "", address)
    this.draw()
  }

  play() {
    if (this.timer) { this.stop(); return this.draw() }
    if (this.at === this.steps - 1) this.at = 0
    this.timer = setInterval(() => this.go(this.at + 1), PLAY_MS)
    return this.draw()
  }

  stop() { clearInterval(this.timer); this.timer = null }

  key(event) {
    const focus = document.activeElement
    const elsewhere = focus && focus.tabIndex >= 0 && !this.root?.contains(focus) // it may have a use for the key
    if (!this.root || elsewhere || /^(INPUT|SELECT|TEXTAREA)$/.test(focus?.tagName) || event.ctrlKey || event.metaKey || event.altKey) return
    if (getComputedStyle(this.root).visibility === "hidden") return
    const move = { ArrowRight: () => this.go(this.at + 1), ArrowLeft: () => this.go(this.at - 1), Home: () => this.go(0), End: () => this.go(this.steps - 1), p: () => this.play() }[event.key]
    if (!move) return
    event.preventDefault()
    move()
  }

  // ---- drawing --------------------------------------------------------------------------------

  build() {
    const { words } = this.data
    const named = (sign, name, onclick) => { const button = press(sign, "rr-button", onclick); button.setAttribute("aria-label", name); button.title = name; return button }
    this.slider = make("input", "rr-slider")
    Object.assign(this.slider, { type: "range", min: 1, max: this.steps, step: 1 })
    this.slider.setAttribute("aria-label", words.slider)
    this.slider.oninput = () => this.go(Number(this.slider.value) - 1)
    this.playing = named("▶", words.play, () => this.play())
    this.title = make("p", "rr-title")
    this.title.setAttribute("aria-live", "polite")
    const controls = make("div", "rr-controls", named("«", words.first, () => this.go(0)), named("‹", words.back, () => this.go(this.at - 1)), this.playing,
      named("›", words.next, () => this.go(this.at + 1)), named("»", words.last, () => this.go(this.steps - 1)), this.slider)
    controls.children[2].classList.add("rr-play")
    this.strip = make("div", "rr-whole")
    this.strip.setAttribute("aria-hidden", "true")
    this.strip.title = words.all
    if (this.steps <= MAX_STRIP) this.drawStrip()
    this.body = make("div", "rr-body")
    this.root.replaceChildren(this.strip, controls, make("p", "rr-small", words.keys), this.title, this.body)
  }

  // The picture of the whole run: reading is one wide block, writing a row of cells.
  drawStrip() {
    const { columns, colours } = this.data
    columns.phase.forEach((phase, index) => {
      const cell = make("span", "rr-pass")
      cell.style.background = colours[phase]
      cell.style.flexGrow = phase === "prefill" ? Math.min(columns.rows[index], Math.max(4, this.steps / 2)) : 1
      cell.onclick = () => this.go(index)
      this.strip.append(cell)
    })
  }

  draw() {
    const { columns, words, colours, boxes, code, terms, matrices } = this.data
    const { at, say } = this
    const phase = columns.phase[at]
    const rows = columns.rows[at]
    const colour = colours[phase]
    this.slider.value = at + 1
    this.slider.setAttribute("aria-valuetext", `${at + 1}`)
    this.playing.textContent = this.timer ? "❚❚" : "▶"
    this.playing.setAttribute("aria-label", this.timer ? words.pause : words.play)
    ;[...this.strip.children].forEach((cell, index) => cell.classList.toggle("rr-now", index === at) || cell.classList.toggle("rr-later", index > at))
    const context = columns.context[at]
    this.title.textContent = `${fill(words.step, { number: at + 1, of: this.steps })} · ${fill(phase === "prefill" ? words.prefill_step : words.decode_step, { rows: say.number(rows), context: say.number(context) })}`
    this.root.style.setProperty("--rr-phase", colour)
    const values = this.values(at)
    const parts = [
      this.part(words.way, ...drawWay(boxes, phase, values, this.opened, words, terms, (id) => this.toggle(id))),
      make("div", "rr-two", this.part(words.goes_in, this.tokens(at)), this.part(words.comes_out, make("ul", "rr-tokens", this.token(columns.leaves[at], phase)))),
      this.part(words.shapes, ...this.shapes(matrices, rows, colour)),
      make("div", "rr-two", this.part(words.memory, ...this.memory(at)), this.part(words.time, ...drawTime(columns, at, colour, colours.floor, words, say))),
      this.part(words.bytes, ...drawBytes(columns, at, this.mostBytes(), colours, words, say)),
      this.part(words.code, this.program(code, phase)),
    ]
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.box ?? document.activeElement.dataset.matrix : null
    this.body.replaceChildren(...parts)
    if (focused) this.body.querySelector(`[data-box="${focused}"], [data-matrix="${focused}"]`)?.focus()
  }

  part(title, ...children) { return make("section", "rr-part", make("h3", "", title), ...children) }

  toggle(id) { this.opened = this.opened === id ? null : id; this.draw() }

  values(at) {
    const { columns } = this.data
    const { say } = this
    return {
      rows: say.number(columns.rows[at]), context: say.number(columns.context[at]), weights: say.bytes(columns.weights[at][0]),
      kv_read: say.bytes(columns.kv[at][0]), kv_write: say.bytes(columns.kv[at][1]), logits: say.bytes(columns.logits[at][1]),
      token: visible(columns.leaves[at]), time: say.time(columns.time_ns[at]),
    }
  }

  mostBytes() {
    this.most ??= {}
    return this.most[this.data.run] ??= this.data.columns.phase.reduce((most, _phase, at) =>
      Math.max(most, ["weights", "kv", "state", "conv"].reduce((sum, kind) => sum + this.data.columns[kind][at][0], 0)), 1)
  }

  token(piece, phase) {
    const item = make("li", "", visible(piece))
    item.style.borderColor = this.data.colours[phase]
    return item
  }

  tokens(at) {
    const { columns, words } = this.data
    const enters = columns.enters[at]
    const list = make("ul", "rr-tokens", ...enters.map((piece) => this.token(piece, columns.phase[at])))
    list.tabIndex = 0
    list.setAttribute("aria-label", words.goes_in)
    const hidden = columns.rows[at] - enters.length
    if (hidden > 0) list.append(make("li", "rr-more", fill(words.more, { count: this.say.number(hidden) })))
    return list
  }

  shapes(matrices, rows, colour) {
    const { words } = this.data
    const { say } = this
    const matrix = matrices.find(({ name }) => name === this.matrix)
    if (!matrix) return [make("p", "rr-small", words.no_shapes)]
    const choices = matrices.map((each) => {
      const button = press(each.name, "rr-choice", () => { this.matrix = each.name; this.draw() })
      button.setAttribute("aria-pressed", String(each === matrix))
      button.dataset.matrix = each.name
      return button
    })
    const met = matrix.every_row ? rows : 1
    const work = fill(words.work, { name: matrix.name, count: say.number(matrix.count), flops: say.flops(2 * met * matrix.k * matrix.n), rows: say.number(met), k: say.number(matrix.k) })
    const notes = !matrix.every_row && rows > 1 ? [make("p", "rr-small", words.head_row)] : []
    return [make("div", "rr-choices", ...choices), ...drawMatrices(matrix, met, colour, words, say), make("p", "rr-small", work), ...notes]
  }

  memory(at) {
    const { columns, words, colours, terms } = this.data
    const { say } = this
    const filled = columns.kv_filled[at]
    const context = columns.context[at]
    const each = context ? filled / context : 0
    const room = each ? Math.round(columns.kv_allocated[at] / each) : 0
    const parts = []
    if (filled) {
      const line = fill(words.kv_line, { filled: say.bytes(filled), context: say.number(context), each: say.bytes(each), added: say.number(columns.rows[at]) })
      parts.push(make("p", "", ...rich(line, terms)), ...drawCache(context, columns.rows[at], room, colours.kv, words, say))
    }
    const held = columns.state_held[at]
    if (!held) return [...parts, make("p", "rr-small", words.no_state)]
    const block = make("span", "rr-state")
    block.style.background = colours.state
    return [...parts, make("p", "", block, ...rich(fill(words.state_line, { held: say.bytes(held) }), terms))]
  }

  program(code, phase) {
    return make("pre", "rr-code", ...code.map((line) => make("span", line.phase === phase || line.phase === "both" ? "rr-here" : "", `${line.text}\n`)))
  }

  end() { this.stop(); document.removeEventListener("keydown", this.onKey) }
}

export default function ({ data, parentElement }) {
  let replay = replays.get(parentElement)
  if (!replay) { replay = new Replay(parentElement); replays.set(parentElement, replay) }
  replay.show(data)
  return whenGone(parentElement, () => { replay.end(); replays.delete(parentElement) })
}
