// What a component gives Streamlit to call when it leaves. Streamlit also calls it when one change of the data overtakes
// another on a busy machine; the node stays then, and what is in it has to stay as well.

function whenGone(node, leave) {
  return () => { if (!node.isConnected) leave() }
}
