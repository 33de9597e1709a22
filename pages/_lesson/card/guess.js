// A question before its answer: a number on a logarithmic scale, or a choice; locked in, then laid beside the lab's.

const SLIDER = 1000
const place = ({ low, high }, value) => Math.log(value / low) / Math.log(high / low)
const valueAt = ({ low, high }, share) => {
  const value = low * (high / low) ** share
  const step = 10 ** (Math.floor(Math.log10(value)) - 1)
  return Number((Math.round(value / step) * step).toPrecision(2))
}
const clamp = (value, low, high) => Math.min(Math.max(value, low), high)

function numberQuestion(question, words, say, lock) {
  let guess = null
  const label = make("span", "rp-guess-value", words.not_yet)
  const slider = make("input", "rp-slider")
  Object.assign(slider, { type: "range", min: 0, max: SLIDER, step: 1, value: SLIDER / 2 })
  slider.setAttribute("aria-label", question.text)
  const field = make("input", "rp-number")
  Object.assign(field, { type: "number", min: question.low, max: question.high, step: "any", inputMode: "decimal" })
  field.setAttribute("aria-label", `${words.your_guess}, ${question.unit}`)
  const button = press(words.lock, "rp-primary", () => lock(guess))
  button.disabled = true
  const choose = (value) => {
    guess = value
    label.textContent = `${say(value)} ${question.unit}`
    slider.setAttribute("aria-valuetext", label.textContent)
    button.disabled = false
  }
  slider.oninput = () => { choose(valueAt(question, slider.value / SLIDER)); field.value = guess }
  field.oninput = () => {
    const typed = Number(field.value)
    if (!(typed > 0)) { button.disabled = true; return }
    choose(clamp(typed, question.low, question.high))
    slider.value = Math.round(place(question, guess) * SLIDER)
  }
  field.onkeydown = (event) => { if (event.key === "Enter" && !button.disabled) lock(guess) }
  slider.setAttribute("aria-valuetext", words.not_yet)
  const ends = make("div", "rp-ends", make("span", "", say(question.low)), make("span", "", `${say(question.high)} ${question.unit}`))
  return [make("div", "rp-sliding", slider, ends), make("div", "rp-row", field, make("span", "", question.unit), label, button)]
}

function choiceQuestion(question, words, lock) {
  return [make("div", "rp-choices", ...question.choices.map(({ id, text }) => press(text, "rp-choice", () => lock(id))))]
}

// How far a guess was off, in words: a factor says more than a difference on a logarithmic scale.
function howFar(guess, value, words, say) {
  const factor = guess > value ? guess / value : value / guess
  if (factor < 1.1) return words.spot_on
  return (guess > value ? words.too_high : words.too_low).replace("{factor}", say(factor))
}

function scale(question, guess, words, say) {
  const track = make("div", "rp-track")
  track.setAttribute("aria-hidden", "true")
  for (let power = Math.ceil(Math.log10(question.low)); 10 ** power <= question.high * 1.001; power += 1) {
    const tick = make("span", "rp-tick", say(10 ** power))
    tick.style.left = `${place(question, 10 ** power) * 100}%`
    track.append(tick)
  }
  const put = (value, kind) => {
    const mark = make("span", `rp-mark rp-${kind}`)
    mark.style.left = `${clamp(place(question, value), 0, 1) * 100}%`
    track.append(mark)
  }
  for (const answer of question.answers) if (answer.value !== null) put(answer.value, answer.kind)
  if (typeof guess === "number") put(guess, "guess")
  return track
}

function revealed(question, guess, terms, words, say) {
  const row = (kind, label, value, note) =>
    make("tr", "", make("td", "", make("span", `rp-key rp-${kind}`)), make("th", "", label), make("td", "rp-value", value), make("td", "rp-note", note))
  const rows = []
  const parts = []
  if (question.kind === "number") {
    if (typeof guess === "number") {
      rows.push(row("guess", words.your_guess, `${say(guess)} ${question.unit}`, howFar(guess, question.answers[0].value, words, say)))
    }
    parts.push(scale(question, guess, words, say))
  } else if (guess !== undefined && guess !== null) {
    const chosen = question.choices.find(({ id }) => id === guess)
    if (chosen) rows.push(row("guess", words.your_guess, chosen.text, question.right.includes(guess) ? words.right : words.not_right))
  }
  if (question.kind === "choice") {
    const right = question.choices.filter(({ id }) => question.right.includes(id)).map(({ text }) => text)
    rows.push(row("right", words.true_one, right.join(" · "), ""))
  }
  for (const answer of question.answers) {
    const unit = answer.value !== null && question.unit ? ` ${question.unit}` : ""
    rows.push(row(answer.kind, answer.label, `${answer.shown}${unit}`, answer.note || words[answer.kind]))
  }
  rows.forEach((each) => { each.querySelector("th").scope = "row" })
  return [...parts, make("table", "rp-answers", make("tbody", "", ...rows)), make("p", "rp-why", ...rich(question.why, terms))]
}
