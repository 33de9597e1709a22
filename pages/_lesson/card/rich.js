// Text with **strong** and *light* words and terms to hover or tap: [KV cache](term:kv_cache). Set as text, never as HTML.

const MARKS = /\*\*(.+?)\*\*|\*(.+?)\*|\[([^\]]+)\]\(term:([a-z_]+)\)/g

function make(tag, className, ...children) {
  const element = document.createElement(tag)
  if (className) element.className = className
  element.append(...children)
  return element
}

function rich(text, terms) {
  const parts = []
  let end = 0
  for (const found of text.matchAll(MARKS)) {
    parts.push(text.slice(end, found.index))
    end = found.index + found[0].length
    const [, strong, light, shown, id] = found
    if (strong) parts.push(make("strong", "", strong))
    else if (light) parts.push(make("em", "", light))
    else parts.push(terms?.[id] ? term(shown, terms[id].text) : shown)
  }
  parts.push(text.slice(end))
  return parts.filter((part) => part !== "")
}

let tips = 0
function term(shown, explanation) {
  const button = make("button", "rp-term", shown)
  button.type = "button"
  const tip = make("span", "rp-tip", explanation)
  tip.id = `rp-tip-${(tips += 1)}`
  tip.setAttribute("role", "tooltip")
  tip.hidden = true
  button.setAttribute("aria-describedby", tip.id)
  button.setAttribute("aria-expanded", "false")
  const show = (open) => {
    tip.hidden = !open
    button.setAttribute("aria-expanded", String(open))
    if (!open) return
    tip.style.left = "0px"
    const beyond = tip.getBoundingClientRect().right - (document.documentElement.clientWidth - 12)
    if (beyond > 0) tip.style.left = `${-beyond}px`
  }
  let pinned = false
  button.onclick = () => { pinned = !pinned; show(pinned) }
  button.onmouseenter = () => show(true)
  button.onmouseleave = () => { if (!pinned) show(false) }
  button.onblur = () => { pinned = false; show(false) }
  button.onkeydown = (event) => { if (event.key === "Escape") { pinned = false; show(false) } }
  return make("span", "rp-term-place", button, tip)
}

function press(label, className, onclick) {
  const button = make("button", className, label)
  button.type = "button"
  button.onclick = onclick
  return button
}
