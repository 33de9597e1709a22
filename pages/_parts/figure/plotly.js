// Plotly, loaded once a page however many charts ask for it.

let plotlyLoading = null
function loadPlotly(url) {
  if (window.Plotly) return Promise.resolve(window.Plotly)
  plotlyLoading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script")
    script.src = url
    script.onload = () => resolve(window.Plotly)
    script.onerror = () => { plotlyLoading = null; reject(new Error("plotly")) }
    document.head.append(script)
  })
  return plotlyLoading
}
