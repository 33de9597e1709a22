// The path on top of a page: its rail, the step's card, and the question whose answer is the page below.
// Until the question is answered or skipped the page below is out of sight: html[data-rp-step="asking"] (card.css).

const PROJECT = "roofline-lab.project"
const paths = new WeakMap()

class Path {
  constructor(parent) { this.parent = parent }

  get root() { return this.parent.querySelector(".rp-path") }

  show(data, go) {
    this.go = go
    const told = JSON.stringify(data)
    if (told === this.told && this.root.childElementCount) return
    this.told = told
    this.data = data
    const format = new Intl.NumberFormat(data.locale, { maximumSignificantDigits: 3 })
    this.say = (value) => format.format(value)
    if (data.current && data.mode !== "away") remember((kept) => { kept.last = data.current })
    if (data.project && !this.projected) { this.projected = true; sessionStorage.setItem(PROJECT, "yes") }
    this.draw()
  }

  draw() {
    const { mode } = this.data
    const parts = { card: () => this.card(), away: () => this.away(), overview: () => this.overview(), end: () => this.end() }[mode]()
    this.root.replaceChildren(...parts)
    const asking = mode === "card" && !this.answered()
    setState("rpStep", mode === "card" ? (asking ? "asking" : "open") : null)
    setState("rpProject", ["card", "end"].includes(mode) && sessionStorage.getItem(PROJECT) === "yes" ? "yes" : null)
    // Charts that were drawn out of sight learn their size.
    if (!asking) window.dispatchEvent(new Event("resize"))
  }

  answered() { return recall().steps[this.data.current] !== undefined }

  step(id) { return [...this.data.steps, this.data.end].find((each) => each.id === id) }

  link(step, className, ...children) {
    const anchor = make("a", className, ...children)
    anchor.href = step.href
    anchor.onclick = (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return
      event.preventDefault()
      this.go(step.id)
    }
    return anchor
  }

  rail() {
    const { steps: kept } = recall()
    const items = this.data.steps.map((step, index) => {
      const done = kept[step.id] !== undefined
      const anchor = this.link(step, "", make("span", "rp-dot", done ? "✓" : String(index + 1)), make("span", "rp-name", step.title))
      anchor.title = step.title
      anchor.setAttribute("aria-label", `${index + 1}. ${step.title}${done ? `, ${this.data.words.done}` : ""}`)
      if (step.id === this.data.current) anchor.setAttribute("aria-current", "step")
      return make("li", done ? "rp-done" : "", anchor)
    })
    const end = this.link(this.data.end, "", make("span", "rp-dot", "★"), make("span", "rp-name", this.data.end.title))
    end.title = this.data.end.title
    end.setAttribute("aria-label", this.data.end.title)
    if (this.data.current === this.data.end.id) end.setAttribute("aria-current", "step")
    const rail = make("nav", "rp-rail", make("ol", "", ...items, make("li", "", end)))
    rail.setAttribute("aria-label", this.data.words.path)
    return rail
  }

  project() {
    const project = press(this.data.words.project, "rp-quiet", () => {
      sessionStorage.setItem(PROJECT, sessionStorage.getItem(PROJECT) === "yes" ? "no" : "yes")
      this.draw()
      this.root.querySelector(".rp-tools button")?.focus()
    })
    project.setAttribute("aria-pressed", String(sessionStorage.getItem(PROJECT) === "yes"))
    return project
  }

  card() {
    const { words, card, steps, current, notice } = this.data
    const index = steps.findIndex((each) => each.id === current)
    const count = words.count.replace("{number}", index + 1).replace("{of}", steps.length)
    const tools = make("div", "rp-tools", this.project(), press(words.leave, "rp-quiet", () => this.go("leave")))
    const head = make("div", "rp-head", make("div", "", make("p", "rp-count", count), make("h2", "", steps[index].title)), tools)
    const body = this.answered() ? this.answer(card) : this.question(card)
    const section = make("section", "rp-card", head, ...(notice ? [make("p", "rp-notice", notice)] : []), make("p", "rp-idea", ...rich(card.idea, card.terms)), ...body)
    section.setAttribute("aria-label", steps[index].title)
    return [this.rail(), section]
  }

  question({ question, terms }) {
    const { words } = this.data
    const lock = (guess) => this.settle({ guess })
    const asked = question.kind === "number" ? numberQuestion(question, words, this.say, lock) : choiceQuestion(question, words, lock)
    const box = make("fieldset", "rp-question", make("legend", "", words.first_you), make("p", "rp-asked", ...rich(question.text, terms)), ...asked)
    return [box, make("div", "rp-row rp-below", press(words.skip, "rp-quiet", () => this.settle({ skipped: true })), make("span", "rp-hint", words.stays_here))]
  }

  settle(answer) {
    remember((kept) => { kept.steps[this.data.current] = answer })
    this.draw()
    this.root.querySelector(".rp-reveal")?.focus({ preventScroll: true })
  }

  answer({ question, terms, do: todo, see, here }) {
    const { words, steps, current, end } = this.data
    const index = steps.findIndex((each) => each.id === current)
    const { guess } = recall().steps[current] ?? {}
    const reveal = make("div", "rp-reveal", make("p", "rp-asked", ...rich(question.text, terms)), ...revealed(question, guess, terms, words, this.say))
    reveal.tabIndex = -1
    reveal.setAttribute("role", "group")
    reveal.setAttribute("aria-label", words.answer)
    const again = press(words.again, "rp-quiet", () => { remember((kept) => { delete kept.steps[current] }); this.draw() })
    const line = (name, ...said) => make("div", "", make("dt", "", name), make("dd", "", ...said))
    const lines = make("dl", "rp-lines", line(words.to_do, ...rich(todo, terms)), line(words.to_see, ...rich(see, terms)))
    if (here) lines.append(line(words.to_know, ...rich(here.text, terms), ...(here.link ? [" ", beside(here.link, words.open_run)] : [])))
    const next = steps[index + 1] ?? end
    const onward = [this.link(next, "rp-step-link rp-next", `${next.title} →`)]
    if (index > 0) onward.unshift(this.link(steps[index - 1], "rp-step-link", `← ${steps[index - 1].title}`))
    return [reveal, lines, make("div", "rp-row rp-below rp-onward", ...onward, again)]
  }

  away() {
    const { words, current } = this.data
    const step = this.step(current)
    return [make("div", "rp-away", make("span", "", words.away), this.link(step, "rp-step-link", step.title), press(words.leave, "rp-quiet", () => this.go("leave")))]
  }

  overview() {
    const { words, steps, end } = this.data
    const kept = recall()
    const last = this.step(kept.last)
    const begin = last ? this.link(last, "rp-step-link rp-next", `${words.go_on} ${last.title} →`) : this.link(steps[0], "rp-step-link rp-next", `${words.begin} →`)
    const forget = press(words.forget, "rp-quiet", () => { remember((each) => { each.steps = {}; each.last = null }); this.draw() })
    const items = steps.map((step, index) => {
      const done = kept.steps[step.id] !== undefined
      const dot = make("span", "rp-dot", done ? "✓" : String(index + 1))
      return make("li", done ? "rp-done" : "", this.link(step, "rp-tile", dot, make("span", "rp-tile-title", step.title), make("span", "rp-tile-time", step.time)))
    })
    const row = make("div", "rp-row", begin, ...(last || Object.keys(kept.steps).length ? [forget] : []))
    items.push(make("li", "", this.link(end, "rp-tile", make("span", "rp-dot", "★"), make("span", "rp-tile-title", end.title), make("span", "rp-tile-time", end.time))))
    return [row, make("ol", "rp-tiles", ...items), make("p", "rp-hint", words.stays_here)]
  }

  end() {
    const { words, steps, asked, onward } = this.data
    const kept = recall().steps
    const tools = make("div", "rp-tools", this.project(), press(words.print, "rp-quiet rp-print", () => window.print()))
    const head = make("div", "rp-head", make("p", "rp-count", closeness(asked, kept, words)), tools)
    const title = (id) => this.link(steps.find((each) => each.id === id), "rp-recap-step", steps.find((each) => each.id === id).title)
    const links = onward.map(({ href, title: name, text }) => {
      const anchor = make("a", "rp-step-link", name)
      anchor.href = href
      return make("li", "", anchor, make("span", "", text))
    })
    const section = make("section", "rp-card rp-end", head, recapTable(asked, kept, words, this.say, title),
      make("h2", "", words.onward), make("ul", "rp-onward-list", ...links), make("p", "rp-hint", words.stays_here))
    section.setAttribute("aria-label", this.data.end.title)
    return [this.rail(), section]
  }
}

// A link that opens beside the path, so that the step stays where it is.
function beside(href, text) {
  const anchor = make("a", "", text)
  Object.assign(anchor, { href, target: "_blank", rel: "noopener" })
  return anchor
}

function setState(name, value) {
  if (value === null) delete document.documentElement.dataset[name]
  else document.documentElement.dataset[name] = value
}

export default function ({ data, parentElement, setTriggerValue }) {
  let path = paths.get(parentElement)
  if (!path) { path = new Path(parentElement); paths.set(parentElement, path) }
  path.show(data, (id) => setTriggerValue("go", id))
  return whenGone(parentElement, () => { setState("rpStep", null); setState("rpProject", null); paths.delete(parentElement) })
}
