// The stream of changes: `tell` gets "open", "changed" or "lost". As a shared worker, this script has one stream for all
// tabs of a browser, which opens only six HTTP/1 connections to a host.
const RETRY_MS = 15_000; // after a refusal; a lost connection is opened again by the browser
const RECENT_MS = 10_000; // a new tab may have missed a change of this time while it was loaded

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
  let isOpen = false;
  let changedAt = 0;
  listen((word) => {
    isOpen = word !== "lost";
    if (word === "changed") changedAt = Date.now();
    tabs.postMessage(word);
  });
  globalThis.onconnect = () => {
    if (isOpen) tabs.postMessage(Date.now() - changedAt < RECENT_MS ? "changed" : "followed");
  };
}
