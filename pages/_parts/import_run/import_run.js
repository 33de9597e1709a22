// Hands a record's file to POST /api/runs (or data.path) and tells Python which record it became.

export default function ({ data, parentElement, setTriggerValue }) {
  const input = parentElement.querySelector("input")
  const said = parentElement.querySelector(".rl-import-said")
  parentElement.querySelector(".rl-import-text").textContent = data.label
  input.onchange = async () => {
    const [file] = input.files
    if (!file) return
    input.value = ""
    said.textContent = data.busy
    try {
      const answer = await fetch(`${data.base}${data.path ?? "/api/runs"}?lang=${data.locale}`, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: file,
      })
      const body = await answer.json()
      said.textContent = answer.ok ? "" : body.error
      if (answer.ok) setTriggerValue("imported", body.id)
    } catch {
      said.textContent = data.unreachable
    }
  }
}
