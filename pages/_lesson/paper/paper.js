// The pen-and-paper task: give each token a phase, count the passes, check. Nothing leaves the browser.

const papers = new WeakMap()
const PHASES = ["none", "prefill", "decode"]
const fillIn = (template, values) => template.replace(/{(\w+)}/g, (whole, name) => values[name] ?? whole)

class Paper {
  constructor(parent) { this.parent = parent; this.checked = false; this.passes = {}; this.longer = "" }

  get root() { return this.parent.querySelector(".rq") }

  show(data) {
    const told = JSON.stringify(data)
    if (told === this.told && this.root.childElementCount) return
    this.told = told
    this.data = data
    this.tokens ??= Array(data.prompt + data.output).fill("none")
    this.draw()
  }

  expected(index) { return index < this.data.prompt ? "prefill" : "decode" }

  cell(index) {
    const { words, colours, prompt } = this.data
    const phase = this.tokens[index]
    const number = index < prompt ? index + 1 : index - prompt + 1
    const button = press(String(number), "rq-cell", () => {
      this.tokens[index] = PHASES[(PHASES.indexOf(this.tokens[index]) + 1) % PHASES.length]
      this.draw(`cell-${index}`)
    })
    button.dataset.part = `cell-${index}`
    button.style.borderColor = phase === "none" ? "" : colours[phase]
    button.append(make("small", "", phase === "none" ? "?" : words[phase]))
    button.setAttribute("aria-label", `${fillIn(index < prompt ? words.input : words.output, { number })}: ${words[phase]}`)
    return button
  }

  count(phase) {
    const { words } = this.data
    const field = make("input", "rq-count")
    Object.assign(field, { type: "number", min: 0, max: 99, value: this.passes[phase] ?? "" })
    field.oninput = () => { this.passes[phase] = field.value }
    return make("label", "", fillIn(words.passes, { phase: words[phase] }), field)
  }

  choose() {
    const { words } = this.data
    const select = make("select", "rq-longer", ...["", "prefill", "decode"].map((value) => {
      const option = make("option", "", value ? words[value] : words.choose)
      option.value = value
      return option
    }))
    select.value = this.longer
    select.onchange = () => { this.longer = select.value }
    return make("label", "", words.longer, select)
  }

  draw(focus) {
    const { words, prompt, output } = this.data
    const cells = this.tokens.map((_phase, index) => this.cell(index))
    const rows = [make("div", "rq-cells", ...cells.slice(0, prompt)), make("div", "rq-cells", ...cells.slice(prompt, prompt + output))]
    const check = press(words.check, "rq-check", () => { this.checked = true; this.draw("result") })
    check.dataset.part = "check"
    const result = make("div", "rq-result", ...(this.checked ? this.result() : []))
    result.dataset.part = "result"
    result.tabIndex = -1
    result.setAttribute("aria-live", "polite")
    this.root.replaceChildren(make("p", "", words.task), ...rows, make("div", "rq-row", this.count("prefill"), this.count("decode"), this.choose(), check), result)
    if (focus) this.root.querySelector(`[data-part="${focus}"]`)?.focus()
  }

  result() {
    const { words, passes, prompt, output } = this.data
    const tokens = this.tokens.every((phase, index) => phase === this.expected(index))
    // Either count is right: a pass for each token written, or the first picked from the prefill.
    const counted = Number(this.passes.prefill) === 1 && [passes.text - 1, passes.engine - 1].includes(Number(this.passes.decode))
    const longer = this.longer === "decode"
    const said = tokens && counted && longer ? [words.all_right] : [
      tokens ? words.phase_right : words.phase_wrong, counted ? words.passes_right : words.passes_wrong, longer ? words.longer_right : words.longer_wrong]
    return [make("ul", "rq-said", ...said.map((text) => make("li", "", text))),
      this.line(words.as_text, prompt, output), this.line(words.as_engine, prompt, passes.engine - 1), make("p", "", words.why)]
  }

  // One wide block for the prompt, then a block for each pass of one token.
  line(label, wide, singles) {
    const { words, colours } = this.data
    const block = (text, phase, grow) => {
      const each = make("span", "rq-pass", text)
      Object.assign(each.style, { borderColor: colours[phase], flexGrow: grow })
      return each
    }
    const blocks = [block(fillIn(words.block, { count: wide }), "prefill", wide), ...Array.from({ length: singles }, () => block("1", "decode", 1))]
    return make("div", "rq-line", make("p", "rq-label", label), make("div", "rq-passes", ...blocks))
  }
}

export default function ({ data, parentElement }) {
  let paper = papers.get(parentElement)
  if (!paper) { paper = new Paper(parentElement); papers.set(parentElement, paper) }
  paper.show(data)
  return whenGone(parentElement, () => papers.delete(parentElement))
}
