// The drawings of one step: matrices to scale, what the model remembers, bytes and time. Numbers in, nodes out.

const SVG = "http://www.w3.org/2000/svg"
function shape(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag)
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value)
  element.append(...children)
  return element
}

const fill = (template, values) => template.replace(/{(\w+)}/g, (whole, name) => (name in values ? values[name] : whole))

function sayer(locale) {
  const plain = new Intl.NumberFormat(locale, { maximumSignificantDigits: 3 })
  const exact = new Intl.NumberFormat(locale, { maximumFractionDigits: 0 })
  const scaled = (value, units) => {
    const [unit, scale] = units.find(([, each]) => value >= each) ?? units.at(-1)
    return `${plain.format(value / scale)} ${unit}`
  }
  return {
    number: (value) => (value >= 1000 ? exact : plain).format(value),
    bytes: (value) => scaled(value, [["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]]),
    flops: (value) => scaled(value, [["TFLOP", 1e12], ["GFLOP", 1e9], ["MFLOP", 1e6], ["kFLOP", 1e3]]),
    time: (value) => scaled(value, [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]]),
  }
}

// X [rows, k] times W [k, n] is Y [rows, n]: one scale for all three, so that a row is as thin as it is.
function drawMatrices(matrix, rows, colour, words, say) {
  const gap = 34
  const width = 900
  const unit = (width - 2 * gap) / (matrix.k + 2 * matrix.n)
  const weightHeight = matrix.k * unit
  const rowHeight = Math.max(1, rows * unit)
  const top = 6
  const height = top + Math.max(weightHeight, rowHeight) + 8
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, class: "rr-matrices", role: "img" })
  const label = `${say.number(rows)} × ${say.number(matrix.k)} · ${say.number(matrix.k)} × ${say.number(matrix.n)} = ${say.number(rows)} × ${say.number(matrix.n)}`
  svg.setAttribute("aria-label", label)
  const put = (x, w, h, ink) => svg.append(shape("rect", { x, y: top, width: Math.max(1, w), height: h, fill: ink, rx: 1 }))
  const [a, b, c] = [0, matrix.k * unit + gap, matrix.k * unit + 2 * gap + matrix.n * unit]
  put(b, matrix.n * unit, weightHeight, "#8a919c")
  put(a, matrix.k * unit, rowHeight, colour)
  put(c, matrix.n * unit, rowHeight, colour)
  svg.append(shape("text", { x: b - gap / 2, y: top + 10, class: "rr-sign" }, "×"), shape("text", { x: c - gap / 2, y: top + 10, class: "rr-sign" }, "="))
  const parts = [
    [words.inputs, `${say.number(rows)} × ${say.number(matrix.k)}`, colour], [words.weights_of, `${say.number(matrix.k)} × ${say.number(matrix.n)}`, "#8a919c"],
    [words.outputs, `${say.number(rows)} × ${say.number(matrix.n)}`, colour],
  ].map(([name, size, ink]) => {
    const key = make("span", "rr-key")
    key.style.background = ink
    return make("li", "", key, `${name} ${size}`)
  })
  const drawn = [svg, make("ul", "rr-keys", ...parts)]
  // The drawing is about as many pixels wide on a page as it has units.
  if (rows * unit < 1) drawn.push(make("p", "rr-small", fill(words.too_thin, { rows: say.number(rows), k: say.number(matrix.k), pixels: say.number(rows * unit) })))
  return drawn
}

const MAX_CELLS = 240
function drawCache(filled, added, room, colour, words, say) {
  const each = Math.max(1, Math.ceil(Math.max(filled, room) / MAX_CELLS))
  const cells = []
  for (let from = 0; from < Math.max(filled, room); from += each) {
    const cell = make("span", "rr-cell")
    if (from < filled) cell.style.background = colour
    if (from < filled && from + each > filled - added) cell.classList.add("rr-new")
    cells.push(cell)
  }
  const grid = make("div", "rr-cells", ...cells)
  grid.setAttribute("aria-hidden", "true")
  return each > 1 ? [grid, make("p", "rr-small", fill(words.kv_cells, { count: say.number(each) }))] : [grid]
}

function drawBytes(columns, at, most, colours, words, say) {
  const kinds = ["weights", "kv", "state", "conv", "logits"].filter((kind) => columns[kind].some(([read, written]) => read + written > 0))
  const bar = (index) => {
    const strip = make("div", "rr-strip")
    for (const kind of kinds) {
      const moved = columns[kind][at][index]
      if (!moved) continue
      const part = make("span", "")
      Object.assign(part.style, { width: `${(moved / most) * 100}%`, minWidth: "2px", background: colours[kind] })
      strip.append(part)
    }
    strip.setAttribute("aria-hidden", "true")
    return strip
  }
  const rows = kinds.map((kind) => {
    const key = make("span", "rr-key")
    key.style.background = colours[kind]
    const head = make("th", "", key, words[kind])
    head.scope = "row"
    const [read, written] = columns[kind][at]
    return make("tr", "", head, make("td", "", read ? say.bytes(read) : "–"), make("td", "", written ? say.bytes(written) : "–"))
  })
  const head = make("tr", "", ...[words.kind, words.read, words.written].map((text) => { const cell = make("th", "", text); cell.scope = "col"; return cell }))
  return [make("div", "rr-strips", make("span", "", words.read), bar(0), make("span", "", words.written), bar(1)),
    make("table", "rr-table", make("thead", "", head), make("tbody", "", ...rows))]
}

function drawTime(columns, at, colour, floor, words, say) {
  const most = Math.max(...["time_ns", "expected_ns", "roof_ns"].map((name) => columns[name].reduce((a, b) => Math.max(a, b), 0)))
  return [["time_ns", words.measured, colour, ""], ["expected_ns", words.expected, "transparent", "rr-outline"], ["roof_ns", words.roof, floor, "rr-thin"]].map(([name, label, ink, kind]) => {
    const value = columns[name][at]
    const bar = make("span", `rr-bar ${kind}`)
    Object.assign(bar.style, { width: `${Math.max(0.4, (value / most) * 100)}%`, background: ink })
    return make("div", "rr-time", make("span", "rr-time-name", label), make("span", "rr-time-track", bar), make("span", "rr-time-value", say.time(value)))
  })
}
