// Tokens as chips: the piece of text each shows, its id under it. Text enters as textContent only.

function make(tag, className, text) {
  const element = document.createElement(tag)
  element.className = className
  if (text !== undefined) element.textContent = text
  return element
}

// A space or a line break would be invisible on a chip.
const visible = (piece) => piece.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥")

function chip([piece, id]) {
  const isBytes = /^‹.*›$/.test(piece)
  const item = make("li", isBytes ? "rl-bytes" : "")
  item.append(make("span", "rl-chips-piece", isBytes ? piece : visible(piece) || "∅"), make("span", "rl-chips-id", String(id)))
  return item
}

function row({ title, tokens, note }) {
  const section = make("section", "rl-chips-row")
  const list = make("ul", "rl-chips-list")
  list.tabIndex = 0
  list.setAttribute("aria-label", title)
  list.append(...tokens.map(chip))
  section.append(make("p", "rl-chips-title", title), list)
  if (note) section.append(make("p", "rl-chips-note", note))
  return section
}

export default function ({ data, parentElement }) {
  parentElement.querySelector(".rl-chips").replaceChildren(...data.rows.map(row))
}
