// The request's way through the server: boxes that light up with the step and open to what they do.

function drawWay(boxes, phase, values, opened, words, terms, toggle) {
  const items = boxes.map((box) => {
    const said = box[phase]
    const button = press("", "rr-box", () => toggle(box.id))
    button.append(make("span", "rr-box-title", box.title))
    button.setAttribute("aria-expanded", String(opened === box.id))
    button.setAttribute("aria-controls", "rr-opened")
    button.dataset.box = box.id
    const item = make("li", said ? "rr-on" : "rr-off", button)
    return item
  })
  items.push(make("li", "rr-loop", `↺ ${words.loop}`))
  const list = make("ol", "rr-way", ...items)
  const about = make("div", "rr-opened")
  about.id = "rr-opened"
  about.setAttribute("aria-live", "polite")
  const box = boxes.find(({ id }) => id === opened)
  if (!box) about.append(make("p", "rr-small", words.open))
  else {
    const line = (name, text) => make("div", "", make("dt", "", name), make("dd", "", text))
    about.append(make("p", "", ...rich(box.about, terms)), make("dl", "",
      line(words.this_step, box[phase] ? fill(box[phase], values) : words.not_now), line(words.anchor, box.anchor)))
  }
  return [list, about]
}
