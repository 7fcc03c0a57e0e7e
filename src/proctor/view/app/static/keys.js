// Keys for rows: the next and the previous one, the search, and a list of the keys. Everything they do is a link or a
// field of the page as well. Keys that are typed into a field, or held with another key, are left alone.
"use strict";

(() => {
  const dialog = document.getElementById("keys");
  const hint = document.getElementById("keys-hint");
  if (!dialog || !hint) return;
  hint.hidden = false;

  const one = (selector) => document.querySelector(selector);
  const links = () => [...document.querySelectorAll("table.rows tbody th a")];

  const follow = (selector) => {
    const link = one(selector);
    if (link) location.assign(link.href);
    return Boolean(link);
  };

  // In a table the focus moves from row to row, and at its end to the next page.
  const step = (by) => {
    const rows = links();
    const turn = by > 0 ? 'a[rel="next"]' : 'a[rel="prev"]';
    if (!rows.length) return follow(turn);
    const here = rows.findIndex((link) => link.closest("tr").contains(document.activeElement));
    const next = here < 0 ? (by > 0 ? 0 : rows.length - 1) : here + by;
    if (!(next in rows)) return follow(turn);
    rows[next].focus();
    rows[next].scrollIntoView({ block: "nearest" });
    return true;
  };

  const search = () => {
    const field = one("#q");
    field?.focus();
    field?.select();
    return Boolean(field);
  };

  const ask = () => {
    dialog.showModal();
    return true;
  };

  const KEYS = {
    j: () => step(1),
    k: () => step(-1),
    ArrowRight: () => follow('a[rel="next"]'),
    ArrowLeft: () => follow('a[rel="prev"]'),
    "/": search,
    "?": ask,
    Escape: () => follow("a[data-up]"),
  };

  const typing = (element) => element.isContentEditable || /^(input|textarea|select)$/.test(element.localName);
  const scrolls = (element) => element.scrollWidth > element.clientWidth && element.tabIndex >= 0;

  document.addEventListener("keydown", (event) => {
    const at = document.activeElement ?? document.body;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (typing(at)) {
      if (event.key === "Escape") at.blur();
      return;
    }
    if (event.key.startsWith("Arrow") && at !== document.body && scrolls(at)) return;
    if (Object.hasOwn(KEYS, event.key) && KEYS[event.key]()) event.preventDefault();
  });
})();
