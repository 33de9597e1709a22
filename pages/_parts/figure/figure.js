// A figure that stays: the node is drawn anew in place when numbers change, so that dragging a slider moves points
// instead of replacing a chart. Colours named @text, @grid and @background are the theme's.

const figures = new WeakMap()
// Where nothing hovers, a tap would lay the tools over the labels and leave them there.
const TOUCHED = matchMedia("(hover: none)").matches
const CONFIG = { displaylogo: false, responsive: true, displayModeBar: TOUCHED ? false : "hover", modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] }

function themed(figure, root) {
  const style = getComputedStyle(root)
  const value = (name, fallback) => style.getPropertyValue(name).trim() || fallback
  const ink = {
    text: value("--st-text-color", "#1b1f27"), grid: value("--st-border-color", "#dcdfe5"),
    background: value("--st-background-color", "#ffffff"), font: value("--st-font", "sans-serif"),
  }
  const named = (text) => text.replaceAll('"@text"', JSON.stringify(ink.text)).replaceAll('"@grid"', JSON.stringify(ink.grid))
    .replaceAll('"@background"', JSON.stringify(ink.background))
  const { data, layout } = JSON.parse(named(JSON.stringify(figure)))
  const axis = { gridcolor: ink.grid, linecolor: ink.grid, zerolinecolor: ink.grid, tickfont: { size: 11 }, automargin: true }
  for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) layout[name] = { ...axis, ...layout[name] }
  Object.assign(layout, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { family: ink.font, color: ink.text, size: 12 },
    hoverlabel: { align: "left", bgcolor: ink.background, bordercolor: ink.grid, font: { color: ink.text, size: 12 } },
  })
  return { data, layout }
}

function mark({ mark: kind, colour }, root) {
  const ink = colour === "@text" ? getComputedStyle(root).getPropertyValue("--st-text-color").trim() : colour
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg")
  svg.setAttribute("width", 18); svg.setAttribute("height", 12); svg.setAttribute("aria-hidden", "true")
  const shapes = {
    dot: ["circle", { cx: 9, cy: 6, r: 4.5, fill: ink }],
    small: ["circle", { cx: 9, cy: 6, r: 2.8, fill: ink }],
    open: ["circle", { cx: 9, cy: 6, r: 4, fill: "none", stroke: ink, "stroke-width": 2 }],
    ring: ["circle", { cx: 9, cy: 6, r: 4.8, fill: "none", stroke: ink, "stroke-width": 1.6, "stroke-dasharray": "3 2" }],
    line: ["path", { d: "M0 6 H18", stroke: ink, "stroke-width": 2.4 }],
    dash: ["path", { d: "M0 6 H18", stroke: ink, "stroke-width": 2, "stroke-dasharray": "6 4" }],
    dots: ["path", { d: "M0 6 H18", stroke: ink, "stroke-width": 2, "stroke-dasharray": "2 3" }],
    box: ["rect", { x: 4, y: 1, width: 10, height: 10, rx: 2, fill: ink }],
    frame: ["rect", { x: 4.7, y: 1.7, width: 8.6, height: 8.6, rx: 2, fill: "none", stroke: ink, "stroke-width": 1.4 }],
  }
  const [tag, attributes] = shapes[kind]
  const shape = document.createElementNS(svg.namespaceURI, tag)
  for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value)
  svg.append(shape)
  return svg
}

class Figure {
  constructor(parent) {
    this.parent = parent
    this.hidden = new Set()
    this.drawing = Promise.resolve()
  }

  // The nodes are looked up each time: Streamlit may have put new ones in their place while the script was loading.
  get root() { return this.parent.querySelector(".rl-figure") }
  get plot() { return this.parent.querySelector(".rl-plot") }

  show(data) {
    this.data = data
    this.plot.style.height = `${data.height}px`
    this.plot.setAttribute("aria-label", data.alt)
    this.drawLegend()
    this.drawing = this.drawing.then(() => loadPlotly(data.plotly)).then((plotly) => this.draw(plotly))
      .catch((error) => { this.plot?.append(data.no_chart); console.error(error) })
  }

  async draw(plotly) {
    if (!this.plot) return
    const { data, layout } = themed(this.data.figure, this.root)
    for (const trace of data) if (trace.legendgroup && this.hidden.has(trace.legendgroup)) trace.visible = false
    for (const shape of layout.shapes ?? []) if (shape.name && this.hidden.has(shape.name)) shape.visible = false
    layout.height = this.data.height
    const plot = this.plot
    plot.style.height = `${this.data.height}px`
    await plotly.react(plot, data, layout, CONFIG)
    plot.dataset.drawn = "yes"
  }

  drawLegend() {
    const focused = document.activeElement?.dataset?.group
    const legend = this.root.querySelector(".rl-figure-legend")
    legend.replaceChildren(...this.data.legend.map((entry) => {
      const button = document.createElement("button")
      button.type = "button"
      button.title = entry.about
      button.dataset.group = entry.group
      button.append(mark(entry, this.root), entry.name)
      button.setAttribute("aria-pressed", String(!this.hidden.has(entry.group)))
      button.onclick = () => {
        if (!this.hidden.delete(entry.group)) this.hidden.add(entry.group)
        this.show(this.data)
      }
      return button
    }))
    if (focused) [...legend.children].find((each) => each.dataset.group === focused)?.focus()
  }
}

export default function ({ data, parentElement }) {
  let figure = figures.get(parentElement)
  if (!figure) { figure = new Figure(parentElement); figures.set(parentElement, figure) }
  figure.show(data)
  return whenGone(parentElement, () => { if (figure.plot) window.Plotly?.purge(figure.plot); figures.delete(parentElement) })
}
