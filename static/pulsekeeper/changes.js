// The stream of changes: `tell` gets "open", "changed" or "lost". As a shared worker, this script has one stream for all
// tabs of a browser, which opens only six HTTP/1 connections to a host.
const RETRY_MS = 15_000; // after a refusal; a lost connection is opened again by the browser

// Returns a function that ends the stream.
export function listen(tell) {
  let source, timer;
  function open() {
    source = new EventSource("/changes");
    source.onopen = () => tell("open");
    source.onmessage = () => tell("changed");
    source.onerror = () => {
      tell("lost");
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, RETRY_MS * (1 + Math.random()));
    };
  }
  open();
  return () => {
    clearTimeout(timer);
    source.close();
  };
}

if ("SharedWorkerGlobalScope" in globalThis) {
  const tabs = new BroadcastChannel("changes");
  let state = "lost";
  listen((word) => {
    state = word === "lost" ? "lost" : "open";
    tabs.postMessage(word);
  });
  globalThis.onconnect = () => tabs.postMessage(state); // for the new tab
}
