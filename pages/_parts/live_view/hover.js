// What the pointer is told: numbers in the reader's language, and which term binds a step and by how much.

function fill(template, values) {
  return template.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "")
}

function makeHover(words, limits, locale) {
  const number = (value, digits) => {
    const places = digits ?? (Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2)
    return new Intl.NumberFormat(locale, { minimumFractionDigits: places, maximumFractionDigits: places }).format(value)
  }
  const ms = (ns) => `${number(ns / 1e6)} ms`
  const size = (bytes) => bytes >= 1e9 ? `${number(bytes / 1e9)} GB` : bytes >= 1e6 ? `${number(bytes / 1e6)} MB` : `${number(bytes / 1e3)} kB`

  const binding = (batch, at) => {
    const roof = batch.measured_roof_ns[at]
    if (batch.bound[at] === "launches") return words.binds_launches
    if (batch.bound[at] === "compute") {
      const reading = limits.bytes_per_s ? (batch.total[at] / limits.bytes_per_s) * 1e9 : 0
      return reading ? fill(words.binds_compute, { roof: ms(roof), other: ms(reading), times: number(roof / reading) }) : words.binds_compute_only
    }
    const computing = limits.flops_per_s ? (batch.flops[at] / limits.flops_per_s) * 1e9 : 0
    return computing ? fill(words.binds_memory, { roof: ms(roof), other: ms(computing), times: number(roof / computing) }) : words.binds_memory_only
  }

  const step = (batch, at) => {
    const isPrefill = batch.phase[at] === "prefill"
    const head = fill(isPrefill ? words.hover_prefill : words.hover_decode, {
      index: batch.index[at], tokens: number(batch.tokens[at], 0), context: number(batch.context[at], 0), time: ms(batch.time_ns[at]),
    })
    const rows = [
      `<b>${head}</b>`,
      `${words.expected}: ${ms(batch.expected_ns[at])}`,
      `${words.roof}: ${ms(batch.measured_roof_ns[at])}`,
    ]
    if (batch.datasheet_ns[at] !== null) rows.push(`${words.floor}: ${ms(batch.datasheet_ns[at])}`)
    rows.push(binding(batch, at), ...batch.flags[at].map((flag) => `⚠ ${words[flag] ?? flag}`))
    return rows.map((row) => wrap(row)).join("<br>")
  }

  const bytes = (batch, at, kind, count) =>
    `<b>${fill(words.hover_bytes, { index: batch.index[at], total: size(batch.total[at]) })}</b><br>` +
    `${words[kind]}: ${size(count)} (${number((100 * count) / batch.total[at])} %)`

  return { step, bytes, number, ms }
}

// Plotly does not wrap; a sentence wider than a phone is broken at a space or, in Chinese, anywhere.
function wrap(text, width = 46) {
  const units = text.match(/[一-鿿　-〿＀-￯]|[^\s一-鿿　-〿＀-￯]+\s*|\s+/g) ?? []
  let line = 0
  return units.map((unit) => {
    const length = [...unit].reduce((sum, character) => sum + (character > "⺀" ? 2 : 1), 0)
    const breaks = line + length > width && !/^[，。；：、）]/.test(unit)
    line = breaks ? length : line + length
    return breaks ? `<br>${unit}` : unit
  }).join("")
}
