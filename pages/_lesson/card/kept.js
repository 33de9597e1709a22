// What the path remembers, in this browser alone: where the reader was, and what was guessed. Nothing of it is sent.

const STORE = "roofline-lab.path"
let unsaved = null // where the browser keeps nothing for us, this visit alone remembers

function recall() {
  if (unsaved) return unsaved
  try {
    const kept = JSON.parse(localStorage.getItem(STORE))
    if (kept?.version === 1 && kept.steps && typeof kept.steps === "object") return kept
  } catch { /* closed to us, or something else lies there */ }
  return { version: 1, last: null, steps: {} }
}

function remember(change) {
  const kept = recall()
  change(kept)
  try { localStorage.setItem(STORE, JSON.stringify(kept)) } catch { unsaved = kept }
}
