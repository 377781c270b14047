"use strict";
for (const section of document.querySelectorAll(".passage")) explore(section);

function explore(section) {
  const passage = JSON.parse(section.querySelector("script").textContent);
  const answer = section.querySelector(".answer");
  const orders = [...section.querySelectorAll(".order input")];
  const buttons = { target: [], reference: [] };
  let order = Number((orders.find(input => input.checked) ?? orders[0]).value);
  let current = null;
  let isPinned = false;

  for (const button of section.querySelectorAll(".token")) {
    const { side, token } = button.dataset;
    buttons[side][token] = button;
    button.setAttribute("aria-label", `${passage[side].name}, token ${Number(token) + 1}: ${button.textContent}`);
  }

  const other = side => (side === "target" ? "reference" : "target");
  const windowAt = (side, token) => passage[side].windows[token][order - 1];
  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const make = (tag, className, ...children) => {
    const element = document.createElement(tag);
    element.className = className;
    element.append(...children);
    return element;
  };
  // Plain texts and marks in turn, as the page is told; never as markup.
  const textOf = pieces =>
    pieces.map((piece, i) => (i % 2 ? make("span", piece.length > 1 ? "mark code" : "mark", piece) : piece));

  function verdict(side, window) {
    const name = passage[other(side)].name;
    if (window.found.length) {
      const here = window.found.find(match => match.here);
      const match = here ?? window.found[0];
      const place = here ? "here" : `elsewhere, at byte ${match.begin.toLocaleString("en")}`;
      const rest = window.found.filter(found => found !== match).map(found => found.order);
      const more = rest.length ? `; also with ${rest.join(", ")}` : "";
      return ["yes", `${name} makes the same window ${place}, with ${count(match.order, "token")}${more}`];
    }
    const { begin_cut: begin, end_cut: end, other_tokens: tokens } = window;
    if (!begin || !end) {
      const where = begin ? "where it ends" : end ? "where it begins" : "where it begins or where it ends";
      return ["no", `${name} does not make it: it does not cut ${where}`];
    }
    if (tokens > passage.max_order) return ["no", `${name} does not make it: it cuts it into ${tokens} tokens`];
    return ["no", `${name} does not make it: it cuts at both ends, but its ${count(tokens, "token")} are other bytes`];
  }

  function show(side, token) {
    for (const button of section.querySelectorAll(".own, .twin, .pinned")) button.classList.remove("own", "twin", "pinned");
    current = { side, token };
    for (const button of section.querySelectorAll('.token[tabindex="0"]')) button.tabIndex = -1;
    buttons[side][token].tabIndex = 0;
    buttons[side][token].classList.toggle("pinned", isPinned);
    const { tokens, name } = passage[side];
    const window = windowAt(side, token);
    answer.dataset.key = window?.key ?? "";
    if (window === null) {
      const why = tokens[token].hex === "" ? "its last token has no bytes" : token + 1 < order ? "the document begins here" : "one of its tokens has no bytes";
      answer.replaceChildren(make("p", "verdict", `${name} has no window of ${count(order, "token")} here: ${why}`), facts([["ids", "ids", listed([tokens[token]])]]));
      return;
    }
    const first = token + 1 - order;
    const own = tokens.slice(first, token + 1);
    for (let t = first; t <= token; t++) buttons[side][t].classList.add("own");
    for (const match of window.found)
      for (let t = match.last + 1 - match.order; t <= match.last; t++) buttons[other(side)][t]?.classList.add("twin");
    const [kind, sentence] = verdict(side, window);
    const hex = own.map(part => part.hex).join("");
    const taken = own.some(part => part.took_space) ? ", an invented leading space taken out" : "";
    answer.replaceChildren(
      make("p", `verdict ${kind}`, sentence),
      facts([
        ["text", "text", textOf(window.show)],
        ["bytes", "hex", [hex.match(/../g).join(" ")]],
        ["key", "key", [window.key]],
        ["order", "order", [`${count(order, "token")} of ${name}${taken}`]],
        ["place", "place", [`bytes ${own[0].begin.toLocaleString("en")} to ${own.at(-1).end.toLocaleString("en")}`]],
        ["ids", "ids", listed(own)],
      ]),
    );
  }

  function listed(tokens) {
    return tokens.map(token => make("span", "id", make("b", "", String(token.id)), ` ${token.spelling}`));
  }

  function facts(rows) {
    const list = document.createElement("dl");
    for (const [term, name, children] of rows) {
      const value = make("dd", name === "order" || name === "place" ? "" : "mono", ...children);
      value.dataset.name = name;
      list.append(make("dt", "", term), value);
    }
    return list;
  }

  function colour() {
    for (const side of ["target", "reference"]) {
      let windows = 0;
      let found = 0;
      buttons[side].forEach((button, token) => {
        const window = windowAt(side, token);
        windows += window !== null;
        found += Boolean(window?.found.length);
        button.classList.toggle("none", window === null);
        button.classList.toggle("missing", window !== null && !window.found.length);
      });
      section.querySelector(`.found[data-side="${side}"]`).textContent =
        `, ${found} of ${count(windows, "window")} also made by the other`;
    }
    if (current) show(current.side, current.token);
  }

  // The token of the other line that holds the middle of this one.
  function across(side, token) {
    const { begin, end } = passage[side].tokens[token];
    const tokens = passage[other(side)].tokens;
    const found = tokens.findIndex(one => one.end > (begin + end) / 2);
    return found < 0 ? tokens.length - 1 : found;
  }

  const tokenOf = event => {
    const button = event.target.closest(".token");
    return button && { side: button.dataset.side, token: Number(button.dataset.token), button };
  };
  section.addEventListener("mouseover", event => {
    const at = tokenOf(event);
    if (at && !isPinned) show(at.side, at.token);
  });
  section.addEventListener("focusin", event => {
    const at = tokenOf(event);
    if (at && at.button.matches(":focus-visible")) show(at.side, at.token);
  });
  section.addEventListener("click", event => {
    const at = tokenOf(event);
    if (!at) return;
    isPinned = !(isPinned && current.side === at.side && current.token === at.token);
    show(at.side, at.token);
  });
  section.addEventListener("keydown", event => {
    if (event.key === "Escape" && current) {
      isPinned = false;
      show(current.side, current.token);
    }
    const at = tokenOf(event);
    if (!at) return;
    const last = buttons[at.side].length - 1;
    const [side, token] = {
      ArrowRight: [at.side, Math.min(at.token + 1, last)],
      ArrowLeft: [at.side, Math.max(at.token - 1, 0)],
      ArrowUp: ["target", at.side === "target" ? at.token : across(at.side, at.token)],
      ArrowDown: ["reference", at.side === "reference" ? at.token : across(at.side, at.token)],
      Home: [at.side, 0],
      End: [at.side, last],
    }[event.key] ?? [null, 0];
    const button = side && buttons[side][token];
    if (!button) return;
    event.preventDefault();
    isPinned = false;
    button.focus();
    show(side, token);
  });
  for (const input of orders)
    input.addEventListener("change", () => {
      order = Number(input.value);
      colour();
    });
  const start = buttons.target[0] ?? buttons.reference[0];
  if (start) start.tabIndex = 0;
  colour();
}
