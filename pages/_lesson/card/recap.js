// The end of the path: every question in one table, the reader's guess beside what was predicted and measured.

const CLOSE = 2

// Whether a guess counts as good: the right choice, or a number within a factor of two.
function isClose(question, guess) {
  if (question.kind === "choice") return question.right.includes(guess)
  const factor = guess / question.answers[0].value
  return factor <= CLOSE && factor >= 1 / CLOSE
}

const guessed = (kept, id) => kept[id]?.guess ?? null

function closeness(asked, kept, words) {
  const given = asked.filter(({ id, question }) => guessText(question, guessed(kept, id), String) !== null)
  const close = given.filter(({ id, question }) => isClose(question, guessed(kept, id)))
  return given.length ? words.close.replace("{close}", close.length).replace("{given}", given.length) : words.no_guess
}

// What was guessed, in words; null where nothing was, or where the question has other choices by now.
function guessText(question, guess, say) {
  if (question.kind === "choice") return question.choices.find(({ id }) => id === guess)?.text ?? null
  return typeof guess === "number" ? `${say(guess)} ${question.unit}` : null
}

function recapTable(asked, kept, words, say, title) {
  const head = make("tr", "", ...[words.step, words.your_guess, words.predicted, words.measured].map((text) => {
    const cell = make("th", "", text)
    cell.scope = "col"
    return cell
  }))
  const rows = asked.map(({ id, learned, question }) => {
    const first = make("th", "", title(id), make("p", "rp-learned", learned))
    first.scope = "row"
    return make("tr", "", first, guessCell(question, guessed(kept, id), words, say),
      answersCell(question, "predicted", words.predicted, ""), answersCell(question, "measured", words.measured, words.not_measured))
  })
  return make("table", "rp-recap", make("thead", "", head), make("tbody", "", ...rows))
}

function guessCell(question, guess, words, say) {
  const text = guessText(question, guess, say)
  const cell = make("td", "", make("span", "rp-recap-value", text ?? "–"))
  cell.dataset.head = words.your_guess
  if (text === null) return cell
  const note = question.kind === "choice"
    ? (isClose(question, guess) ? words.right : words.not_right) : howFar(guess, question.answers[0].value, words, say)
  cell.append(make("small", "", note))
  return cell
}

// The right choice and what was predicted, or what was measured: each with its label.
function answersCell(question, kind, head, none) {
  const answers = question.answers.filter((answer) => answer.kind === kind)
  const said = answers.map(({ label, shown, value, note }) => {
    const unit = value !== null && question.unit ? ` ${question.unit}` : ""
    return make("p", "", make("span", "rp-recap-value", `${shown}${unit}`), make("small", "", note ? `${label} (${note})` : label))
  })
  if (kind === "predicted" && question.kind === "choice") {
    const right = question.choices.filter(({ id }) => question.right.includes(id)).map(({ text }) => text)
    said.unshift(make("p", "", make("span", "rp-recap-value", right.join(" · "))))
  }
  const cell = make("td", "", ...(said.length ? said : [make("small", "", none)]))
  cell.dataset.head = head
  return cell
}
