// A page that is opened from a folder may start no worker, which the search needs. There, a hidden frame takes its place.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.waiting = []
      this.inside.postMessage = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        this.onmessage?.(event)
      }
      const script = this.inside.document.createElement("script")
      script.src = url
      script.onload = () => { this.waiting.splice(0).forEach(data => this.hand(data)); this.waiting = null }
      this.inside.document.body.append(script)
    }
    hand(data) { this.inside.dispatchEvent(new MessageEvent("message", { data })) }
    postMessage(data) { this.waiting ? this.waiting.push(data) : this.hand(data) }
    terminate() { this.inside.frameElement?.remove() }
  }
}
