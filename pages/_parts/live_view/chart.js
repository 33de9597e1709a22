// The chart: one point a step over the three lines, and under it where the step's bytes went.
// Traces are only ever extended; the node and the reader's zoom stay for as long as the page does.

const LINES = ["expected", "roof", "floor"]
const KINDS = ["weights", "experts", "kv", "window", "latent", "state", "conv", "logits"]
const TRACES = ["prefill", "decode", ...LINES, ...KINDS]
const HALF_STEP = 0.46

function inkOf(element) {
  const style = getComputedStyle(element)
  const value = (name, fallback) => style.getPropertyValue(name).trim() || fallback
  const background = value("--st-background-color", "#ffffff")
  return {
    text: value("--st-text-color", "#1b1f27"),
    grid: value("--st-border-color", "#dcdfe5"),
    background,
    font: value("--st-font", "sans-serif"),
    expected: isDark(background) ? "#ffffff" : "#000000",
  }
}

function isDark(colour) {
  const probe = document.createElement("canvas").getContext("2d")
  probe.fillStyle = colour
  const hex = probe.fillStyle
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16))
  return 0.3 * r + 0.6 * g + 0.1 * b < 128
}

function tracesFor(colours, ink) {
  const measured = (name, marker) => ({
    name, type: "scatter", mode: "markers", x: [], y: [], text: [], hovertemplate: "%{text}<extra></extra>",
    marker: { line: { width: 0, color: colours.floor }, opacity: 0.95, ...marker },
  })
  const line = (name, style) => ({ name, type: "scatter", mode: "lines", x: [], y: [], hoverinfo: "skip", line: style })
  const bar = (name) => ({
    name, type: "bar", x: [], y: [], yaxis: "y2", text: [], textposition: "none",
    hovertemplate: "%{text}<extra></extra>", marker: { color: colours[name], line: { width: 0 } },
  })
  return [
    measured("prefill", { color: colours.prefill, size: 12, symbol: "diamond" }),
    measured("decode", { color: colours.decode, size: 6.5 }),
    line("expected", { color: ink.expected, width: 1.8 }),
    line("roof", { color: colours.floor, width: 1.6, dash: "dot" }),
    line("floor", { color: colours.floor, width: 1.8, dash: "dash" }),
    ...KINDS.map(bar),
  ]
}

function layoutFor(words, ink, scale, lastStep) {
  const axis = { gridcolor: ink.grid, zeroline: false, linecolor: ink.grid, tickfont: { size: 11 }, automargin: true }
  const heading = (text, y) => ({
    text, x: 0, y, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 12 },
  })
  return {
    margin: { l: 44, r: 10, t: 24, b: 36 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: ink.font, color: ink.text, size: 12 },
    showlegend: false,
    barmode: "stack",
    // Bars of a few pixels with gaps between them make a pattern of their own: many steps stand side by side.
    bargap: lastStep > 30 ? 0 : 0.12,
    hovermode: "closest",
    hoverlabel: { align: "left", bgcolor: ink.background, bordercolor: ink.grid, font: { family: ink.font, color: ink.text, size: 13 } },
    dragmode: "zoom",
    uirevision: "keep",
    xaxis: { ...axis, showgrid: false, domain: [0, 1], anchor: "y2", range: [-1, Math.max(8, lastStep) + 1], title: { text: words.step, standoff: 6, font: { size: 12 } }, tickformat: ",d" },
    yaxis: { ...axis, domain: [0.4, 1], type: scale, rangemode: "tozero", tickformat: ",~r" },
    yaxis2: { ...axis, domain: [0, 0.27], rangemode: "tozero", tickformat: ",~r", nticks: 4 },
    annotations: [heading(words.time_axis, 1.0), heading(words.bytes_axis, 0.275)],
  }
}

// Where nothing hovers, a tap would lay the tools over the labels and leave them there.
const TOUCHED = matchMedia("(hover: none)").matches
const CONFIG = { displaylogo: false, responsive: true, displayModeBar: TOUCHED ? false : "hover", modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] }

// One batch of steps (columns, as the engine sends them) as what each trace gains.
function gains(batch, words, hover) {
  const more = Object.fromEntries(TRACES.map((name) => [name, { x: [], y: [], text: [] }]))
  batch.index.forEach((index, at) => {
    const isPrefill = batch.phase[at] === "prefill"
    const point = more[isPrefill ? "prefill" : "decode"]
    point.x.push(index)
    point.y.push(batch.time_ns[at] / 1e6)
    point.text.push(hover.step(batch, at))
    const lines = { expected: batch.expected_ns[at], roof: batch.measured_roof_ns[at], floor: batch.datasheet_ns[at] }
    for (const name of LINES) {
      const ms = lines[name] === null ? null : lines[name] / 1e6
      more[name].x.push(index - HALF_STEP, index + HALF_STEP)
      more[name].y.push(ms, ms)
      if (isPrefill) { more[name].x.push(index + HALF_STEP); more[name].y.push(null) }
    }
    const moved = bytesByKind(batch, at)
    for (const name of KINDS) {
      more[name].x.push(index)
      more[name].y.push(moved[name] / 1e6)
      more[name].text.push(hover.bytes(batch, at, name, moved[name]))
    }
  })
  return more
}

function joined(batches) {
  const columns = Object.keys(batches[0]).filter((key) => Array.isArray(batches[0][key]))
  return Object.fromEntries(columns.map((key) => [key, batches.flatMap((batch) => batch[key])]))
}

function bytesByKind(batch, at) {
  const { experts, window, latent } = batch
  return {
    weights: batch.weights[at] - experts[at],
    experts: experts[at],
    kv: batch.kv_read[at] + batch.kv_write[at] - window[at] - latent[at],
    window: window[at],
    latent: latent[at],
    state: batch.state_read[at] + batch.state_write[at],
    conv: batch.conv_read[at] + batch.conv_write[at],
    logits: batch.logits[at],
  }
}

function extend(plotly, node, more) {
  const at = [], x = [], y = [], text = [], textAt = []
  TRACES.forEach((name, trace) => {
    if (!more[name].x.length) return
    at.push(trace); x.push(more[name].x); y.push(more[name].y)
    if (more[name].text.length) { textAt.push(trace); text.push(more[name].text) }
  })
  if (!at.length) return
  // Texts first and by hand: extendTraces wants every key in every trace, and lines have no text.
  textAt.forEach((trace, i) => { node.data[trace].text.push(...text[i]) })
  plotly.extendTraces(node, { x, y }, at)
}
