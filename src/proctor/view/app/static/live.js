// Keeps a page as fresh as the files it shows. A page that can change says where to listen: <main data-live="...">.
// On each word from there it is fetched anew, and only what has changed is taken over: what is scrolled, focused,
// opened, typed or ticked stays as it is.
"use strict";

(() => {
  const main = document.querySelector("main[data-live]");
  const note = document.getElementById("live");
  if (!main || !note) return;

  const GAP = 1000; // milliseconds between two fetches, at least
  const SHARE = 3; // and so many times as long as the last one took
  const MINE = { details: ["open"], input: ["value", "checked"], select: ["value"], option: ["selected"], textarea: ["value"] };
  let source = null;
  let fetching = false;
  let again = false;

  const say = (word) => {
    if (note.textContent !== note.dataset[word]) note.textContent = note.dataset[word];
  };

  const stop = (word) => {
    source?.close();
    source = null;
    if (word) say(word);
  };

  const listen = () => {
    if (source || document.hidden || !main.dataset.live) return;
    source = new EventSource(main.dataset.live);
    source.onopen = () => say("on");
    source.onmessage = refresh;
    source.onerror = () => {
      if (source?.readyState === EventSource.CLOSED) stop("lost");
    };
  };

  const take = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const content = fresh.querySelector("main");
    if (!content) throw new Error("no page");
    document.title = fresh.title;
    Idiomorph.morph(main, content, { // with where to listen from now on, if there is more to come
      callbacks: {
        beforeNodeMorphed: (node) => node !== note,
        beforeNodeRemoved: (node) => node !== note,
        beforeAttributeUpdated: (name, node) => !MINE[node.localName]?.includes(name),
      },
    });
    if (!main.dataset.live) stop("over");
  };

  const rest = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

  async function refresh() {
    again = true;
    if (fetching) return;
    fetching = true;
    try {
      while (again && main.dataset.live) {
        again = false;
        const began = performance.now();
        const answer = await fetch(location.href, { cache: "no-store" });
        if (!answer.ok) throw new Error(answer.statusText);
        take(await answer.text());
        await rest(Math.max(GAP, SHARE * (performance.now() - began)));
      }
    } catch {
      stop("lost");
    } finally {
      fetching = false;
    }
  }

  // A browser has few connections to one server: a page that nobody sees holds none.
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : listen()));
  window.addEventListener("pagehide", () => stop());
  window.addEventListener("pageshow", listen);
  listen();
})();
