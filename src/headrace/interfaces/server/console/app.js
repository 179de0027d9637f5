// The frame: navigation, theme, connection, login; each page is a function that fills `main`.
import { onUnauthorized } from "./api.js";
import { ago, bytes, count, fill, h, moment, seconds, text } from "./dom.js";
import { watchCatalog } from "./catalog.js";
import { candidates } from "./pages/candidates.js";
import { epochs } from "./pages/epochs.js";
import { operations } from "./pages/operations.js";
import { overview } from "./pages/overview.js";
import { relation } from "./pages/relation.js";
import { sinks } from "./pages/sinks.js";
import { sources } from "./pages/sources.js";
import { statements } from "./pages/statements.js";
import { views } from "./pages/views.js";
import { workbench } from "./pages/workbench.js";
import { toneOfAge } from "./problems.js";
import { search } from "./search.js";
import { followStatus, now } from "./status.js";

const PAGES = [
  { path: "", title: "Overview", show: overview },
  { path: "sources", title: "Sources", show: sources },
  { path: "views", title: "Views", show: views },
  { path: "sinks", title: "Sinks", show: sinks },
  { path: "candidates", title: "Candidates", show: candidates },
  { path: "workbench", title: "Workbench", show: workbench },
  { path: "statements", title: "Statements", show: statements },
  { path: "epochs", title: "Epochs", show: epochs },
  { path: "operations", title: "Operations", show: operations },
];
const THEMES = ["auto", "light", "dark"];
const LOST_MILLISECONDS = 2500;
const SIGNED_IN = "headrace.signed-in";

const main = document.getElementById("main");
const nav = document.getElementById("nav");
let leave = () => {};
let before = null;

function route() {
  const [path = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const [name, ...more] = rest.map(decodeURIComponent);
  if (path === "relation" && name) return { key: null, title: name, show: (place) => relation(place, name, more[0] ?? null, choose) };
  const page = PAGES.find((each) => each.path === path) ?? PAGES[0];
  return { key: page.path, title: page.title, show: (place) => page.show(place, name, ...more) };
}

/** Mark the page in the navigation to which what is shown belongs; with null, none. */
function choose(path) {
  for (const link of nav.children) {
    if (link.dataset.path === path) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function navigate() {
  const found = route();
  leave();
  document.title = `${found.title} · Headrace`;
  text(document.getElementById("where"), found.title);
  unfold(false);
  choose(found.key);
  fill(main);
  leave = found.show(main) ?? (() => {});
  if (before !== null) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  before = location.hash;
}

/** Show or hide the menu, which a narrow page hides. */
function unfold(open) {
  document.getElementById("menu").setAttribute("aria-expanded", String(open));
  document.querySelector(".side").classList.toggle("open", open);
}

/** Show the version of the server and what it uses, to whom may know. */
function drawUsage({ server }) {
  const place = document.getElementById("usage");
  if (server === null) return fill(place);
  const found = [["Version", server.version], ["Memory", server.memory === null ? null : bytes(server.memory)], ["Disk", `${bytes(server.disk)}, ${bytes(server.disk_free)} free`]];
  const words = JSON.stringify(found);
  if (place.dataset.shown === words) return place;
  place.dataset.shown = words;
  return fill(place, found.filter(([, value]) => value !== null).map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))),
    h("div", {}, h("dt", {}, "HTTP API"), h("dd", {}, h("a", { href: "/openapi.json", target: "_blank" }, "description"))));
}

function chooseTheme(theme) {
  if (theme === "auto") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("headrace.theme");
  } else {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("headrace.theme", theme);
  }
  for (const button of document.getElementById("theme").children) {
    button.setAttribute("aria-pressed", String(button.value === theme));
  }
}

let lost = null;

/** Show whether what is seen is current: a page that has lost its server says so, and since when. */
function connection(state) {
  const place = document.getElementById("live");
  const live = state === "live";
  const failed = now.moment?.error ?? null;
  const behind = now.moment?.seconds ?? 0;
  const tone = !live ? "warn" : failed !== null ? "bad" : toneOfAge(null, behind);
  if (place.children.length === 0) fill(place, h("span", { class: "dot" }), h("span", {}));
  place.firstChild.className = `dot ${tone}`;
  place.title = failed ?? (now.moment === null ? "" : `Epoch ${count(now.moment.epoch)}, committed at ${moment(now.moment.committed_at)}: an epoch brings all views up to date with the changes that have arrived, all at once.`);
  text(place.lastChild, !live ? state : failed !== null ? "views are no longer updated" : liveWords());
  if (live) {
    clearTimeout(lost);
    lost = null;
    stale(null);
  } else {
    lost ??= setTimeout(() => stale(state), LOST_MILLISECONDS);
  }
}

/** Say in words how current the views are. */
function liveWords() {
  if (now.moment === null) return "connected";
  const { seconds: behind, committed_at: at } = now.moment;
  return behind > 0 ? `views are ${seconds(behind)} behind` : `up to date, ${ago(at)}`;
}

function stale(state) {
  const said = document.getElementById("stale");
  said.hidden = state === null;
  main.classList.toggle("is-stale", state !== null);
  if (state !== null) text(said, now.moment === null ? "Not connected." : `Not connected: this is as of ${moment(now.moment.at)}.`);
}

let asking = null;

/** Ask for a token; resolve to whether one was taken. Requests that wait share one dialog. */
function askForToken(error) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("login");
    const said = h("p", { class: "dim", role: "alert" }, error.primary);
    const token = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true, "aria-label": "Token" });
    const form = h("form", {
      async onsubmit(event) {
        event.preventDefault();
        token.disabled = true;
        const response = await fetch("/v1/login", {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ token: token.value }),
        }).catch(() => null);
        if (response?.ok) {
          localStorage.setItem(SIGNED_IN, "yes");
          offerSignOut();
          dialog.close("in");
          return;
        }
        said.className = "warning";
        text(said, response === null ? "the server cannot be reached" : response.status === 401 ? "this token is not valid" : `the server answered ${response.status}`);
        token.disabled = false;
        token.select();
      },
    }, h("h2", { id: "login-title" }, "Sign in"), said, token, h("button", { class: "action primary" }, "Sign in"),
    h("p", { class: "dim" }, "An owner of the database makes tokens: ", h("code", {}, "headrace token create"), "."));
    fill(dialog, form);
    dialog.addEventListener("close", () => {
      asking = null;
      resolve(dialog.returnValue === "in");
    }, { once: true });
    dialog.returnValue = "";
    dialog.showModal();
  });
  return asking;
}

/** A browser that has signed in can sign out; the cookie itself is hidden from scripts. */
function offerSignOut() {
  const place = document.getElementById("sign-out");
  if (localStorage.getItem(SIGNED_IN) === null || place.childElementCount > 0) return;
  place.append(h("button", {
    type: "button", class: "plain",
    async onclick() {
      await fetch("/v1/logout", { method: "POST" }).catch(() => null);
      localStorage.removeItem(SIGNED_IN);
      location.reload();
    },
  }, "Sign out"));
}

fill(nav, PAGES.map(({ path, title }) => h("a", { href: `#/${path}`, "data-path": path }, title)));
fill(document.getElementById("theme"), THEMES.map((theme) =>
  h("button", { type: "button", ".value": theme, onclick: () => chooseTheme(theme) }, theme)));
chooseTheme(document.documentElement.dataset.theme ?? "auto");
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
onUnauthorized(askForToken);
document.getElementById("menu").addEventListener("click", () => unfold(!document.querySelector(".side").classList.contains("open")));
search(document.getElementById("search"), PAGES);
watchCatalog(drawUsage);
offerSignOut();
followStatus(connection);
addEventListener("hashchange", navigate);
navigate();
