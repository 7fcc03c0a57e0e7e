// Moves and zooms a timeline by wheel, drag and keys. Each step is an address: the page of it is fetched, and its
// part of this page takes the place of the old one. Without this script the links above the picture do the same.
"use strict";

(() => {
  const STEP = 1.25; // of a turn of the wheel
  const WAIT = 90; // milliseconds in which further turns are taken together
  const CLICK = 4; // pixels that a hand may shake without dragging
  const SHORTEST = 200; // nanoseconds, as the server has it

  const view = document.getElementById("view");
  if (!view || !document.getElementById("lanes")) return;

  let wanted = null; // a window that is not shown yet
  let fetching = null;
  let timer = 0;

  const figure = () => document.getElementById("lanes");
  const number = (name) => Number(figure().dataset[name]);
  const current = () => wanted ?? { begin: number("begin"), end: number("end") };

  const within = (begin, end) => {
    const span = Math.max(number("span"), SHORTEST);
    const length = Math.min(Math.max(end - begin, SHORTEST), span);
    const first = Math.min(Math.max(0, begin + (end - begin - length) / 2), span - length);
    return { begin: Math.floor(first), end: Math.ceil(first + length) };
  };

  const addressOf = (window_) => {
    const address = new URL(location.href);
    address.searchParams.delete("of");
    address.searchParams.set("from", window_.begin);
    address.searchParams.set("to", window_.end);
    return address;
  };

  // Puts the part of a fetched page in the place of this one; what is focused, scrolled and opened stays so.
  const take = (text, address) => {
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("view");
    if (!fresh) throw new Error("no timeline");
    const focused = document.activeElement?.id;
    const scrolled = figure().scrollLeft;
    const open = [...view.querySelectorAll("details")].map((one) => one.open);
    view.replaceChildren(...fresh.childNodes);
    view.querySelectorAll("details").forEach((one, at) => (one.open = open[at] ?? false));
    figure().scrollLeft = scrolled;
    if (focused === "lanes") figure().focus({ preventScroll: true });
    history.replaceState(null, "", address);
    ready();
  };

  async function show() {
    fetching?.abort();
    const mine = (fetching = new AbortController());
    const target = wanted;
    const address = addressOf(target);
    try {
      const answer = await fetch(address, { signal: mine.signal });
      if (!answer.ok) throw new Error(answer.statusText);
      const text = await answer.text();
      if (mine !== fetching) return;
      if (wanted === target) wanted = null;
      take(text, address);
    } catch (error) {
      if (error.name === "AbortError" || mine !== fetching) return;
      location.assign(address); // says what is wrong, as a page
    }
  }

  const go = (begin, end) => {
    wanted = within(begin, end);
    clearTimeout(timer);
    timer = setTimeout(show, WAIT);
  };

  const zoom = (factor, share) => {
    const { begin, end } = current();
    const fixed = begin + (end - begin) * share;
    go(fixed - (fixed - begin) * factor, fixed + (end - fixed) * factor);
  };

  const move = (share) => {
    const { begin, end } = current();
    const by = Math.min(Math.max((end - begin) * share, -begin), number("span") - end);
    go(begin + by, end + by);
  };

  // Pixels of the plot on the screen: where it begins, and how wide it is.
  const plot = () => {
    const box = figure().querySelector("svg").getBoundingClientRect();
    const scale = box.width / number("width");
    return { left: box.left + number("left") * scale, width: (number("right") - number("left")) * scale };
  };

  const shareAt = (x) => {
    const { left, width } = plot();
    return Math.min(Math.max((x - left) / width, 0), 1);
  };

  const wheel = (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(event.deltaY > 0 ? STEP : 1 / STEP, shareAt(event.clientX));
    } else if (event.shiftKey) {
      event.preventDefault();
      move((event.deltaY || event.deltaX) > 0 ? 0.1 : -0.1);
    }
  };

  const drag = (event) => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    const here = figure();
    const events = here.querySelector(".events");
    const scale = number("width") / here.querySelector("svg").getBoundingClientRect().width;
    let moved = 0;
    const follow = (later) => {
      moved = later.clientX - event.clientX;
      if (Math.abs(moved) < CLICK) return;
      here.classList.add("moving");
      events.setAttribute("transform", `translate(${moved * scale} 0)`);
    };
    const end = () => {
      window.removeEventListener("pointermove", follow);
      here.classList.remove("moving");
      if (Math.abs(moved) < CLICK) return;
      window.addEventListener("click", (click) => click.preventDefault(), { capture: true, once: true });
      setTimeout(() => events.removeAttribute("transform"), 2000); // if nothing has taken its place
      move(-moved / plot().width);
    };
    window.addEventListener("pointermove", follow);
    window.addEventListener("pointerup", end, { once: true });
  };

  const KEYS = {
    ArrowLeft: () => move(-0.5),
    ArrowRight: () => move(0.5),
    "+": () => zoom(0.5, 0.5),
    "=": () => zoom(0.5, 0.5),
    "-": () => zoom(2, 0.5),
    Home: () => go(0, number("span")),
  };

  const press = (event) => {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  };

  function ready() {
    const here = figure();
    document.getElementById("keys").hidden = false;
    here.addEventListener("wheel", wheel, { passive: false });
    here.addEventListener("pointerdown", drag);
    here.addEventListener("dragstart", (event) => event.preventDefault()); // links would be dragged themselves
    here.addEventListener("keydown", press);
  }

  ready();
})();
