// Operations: backups, branches and access tokens, each with what its owner may do.
import { action, listed } from "../actions.js";
import { ServerError } from "../api.js";
import { watchCatalog } from "../catalog.js";
import { bytes, count, errorBox, fill, h, loading, moment, toned } from "../dom.js";
import { listing } from "../listing.js";
import { includes } from "../objects.js";
import { literal, quoted } from "../sql.js";

const PLACE = "headrace.lifecycle.copies";
const ROLES = ["READER", "WRITER", "OWNER"];
const at = (text) => (text === null ? "" : moment(Date.parse(/Z|[+-]\d\d:?\d\d$/.test(text) ? text : `${text.replace(" ", "T")}Z`) / 1000));

export function operations(main) {
  const place = h("div", { class: "stack" }, loading());
  fill(main, h("div", { class: "head" }, h("h1", {}, "Operations")), place);
  let made = null;
  return watchCatalog(({ client }) => {
    if (made === client.role) return;
    made = client.role;
    fill(place, includes(client.role, "owner") ? [backups(client), branches(client), tokens(client)] : h("section", { class: "panel" }, h("div", { class: "empty" },
      h("h2", {}, "Backups, branches and tokens belong to owners of the database"),
      h("p", {}, client.name === null ? "" : `The token ${client.name} has ${client.role === null ? "no role in the whole database" : `the role ${client.role}`}.`))));
  });
}

/** A panel with a listing that is read by statements, and read again after each change of it. */
function panel(title, note, tools, table, read) {
  const failed = h("div");
  const again = async () => {
    try {
      await read();
      fill(failed);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      table.set([], "");
      fill(failed, errorBox({ ...error.error, span: null }));
    }
  };
  table.wait();
  again();
  return { again, element: h("section", { class: "panel" }, h("div", { class: "title" }, h("h2", {}, title), h("span", { class: "dim" }, note), h("div", { class: "tools" }, tools)), failed, table.element) };
}

function backups({ role }) {
  const table = listing("Backups", ["Name", "Taken", ["Epoch", { class: "num" }], ["Files", { class: "num" }], ["Size", { class: "num" }], "Version"]);
  const where = h("input", { type: "text", name: "place", placeholder: "backups or s3://bucket/prefix", "aria-label": "Place of backups", ".value": localStorage.getItem(PLACE) ?? "", autocomplete: "off", spellcheck: "false" });
  const show = h("form", { class: "inline", onsubmit: (event) => (event.preventDefault(), localStorage.setItem(PLACE, where.value.trim()), made.again()) }, where, h("button", { class: "action small" }, "Show"));
  const make = action("Back up…", {
    role, primary: true, title: "Back up the database", does: "Copies the database as of now to a directory that the server may write to (headrace serve --backups), or to an object store. Files that the place has from earlier backups are not copied again.",
    fields: [{ name: "place", label: "Place", required: true, ".value": localStorage.getItem(PLACE) ?? "", placeholder: "/srv/backups or s3://bucket/prefix" }, { name: "keep", label: "Newest backups to keep (all, if empty)", inputmode: "numeric", pattern: "[1-9][0-9]*" }],
    sql: ({ place, keep }) => `BACKUP TO ${literal(place)}${keep ? ` WITH (keep = ${keep})` : ""}`,
    done: () => made.again(),
  });
  const made = panel("Backups", "", [show, make], table, async () => {
    const place = where.value.trim();
    const found = place ? await listed(`SHOW BACKUPS IN ${literal(place)}`) : [];
    table.set(found.map((each) => h("tr", {}, h("td", { class: "mono" }, each.name), h("td", { class: "dim nowrap" }, at(each.taken_at)), h("td", { class: "num" }, count(each.epoch)), h("td", { class: "num" }, count(each.files)), h("td", { class: "num" }, bytes(each.bytes)), h("td", { class: "dim" }, each.version))),
      place ? "There is no backup at this place yet." : "Name the place of your backups to see them: a directory or the URL of an object store.");
  });
  return made.element;
}

function branches({ role }) {
  const table = listing("Branches", ["Name", "Begins at", "Created", ["Own size", { class: "num", title: "What it does not share with this database" }], ["Shared", { class: "num" }], "In use by", [h("span", { class: "visually-hidden" }, "Drop"), {}]]);
  const make = action("Create branch…", {
    role, title: "Create a branch", does: "A branch is a database of its own that begins as this one is, and shares its files: what is written to one is not seen in the other.",
    fields: [{ name: "name", label: "Name", required: true, pattern: "[A-Za-z0-9_\\-]{1,63}", placeholder: "trial" }, { name: "epoch", label: "From epoch (now, if empty)", inputmode: "numeric", pattern: "[0-9]+" }],
    sql: ({ name, epoch }) => `CREATE BRANCH ${quoted(name || "name")}${epoch ? ` FROM EPOCH ${epoch}` : ""}`,
    done: () => made.again(),
  });
  const made = panel("Branches", "", [make], table, async () => {
    const found = await listed("SHOW BRANCHES");
    table.set(found.map((each) => h("tr", {}, h("td", {}, h("span", { class: "name" }, each.name)),
      h("td", { class: "dim nowrap" }, `epoch ${count(each.from_epoch)}`), h("td", { class: "dim nowrap" }, at(each.created_at)), h("td", { class: "num" }, bytes(each.own_bytes)), h("td", { class: "num dim" }, bytes(each.shared_bytes)), h("td", { class: "dim" }, each.in_use ?? ""),
      h("td", {}, action("Drop…", { role, harms: true, title: `Drop branch ${each.name}`, sql: `DROP BRANCH ${quoted(each.name)}`, does: "The branch and what was written to it are removed. This database stays as it is.", done: () => made.again() })))),
    "No branches. A branch is a copy to try changes on, which shares the files of this database.");
  });
  return made.element;
}

function tokens({ role }) {
  const table = listing("Access tokens", ["Name", "State", "Roles", "Created", "Expires", [h("span", { class: "visually-hidden" }, "Actions"), {}]]);
  const make = action("Create token…", {
    role, title: "Create an access token", does: "Its secret is shown once, here. It may do nothing until it is granted a role. As soon as a token exists, every request needs one.",
    fields: [{ name: "name", label: "Name", required: true, pattern: "[A-Za-z_][A-Za-z0-9_]*", placeholder: "dashboard" }, { name: "days", label: "Valid for days (always, if empty)", inputmode: "numeric", pattern: "[1-9][0-9]*" }],
    sql: ({ name, days }) => `CREATE TOKEN ${quoted(name || "name")}${days ? ` VALID FOR INTERVAL '${days}' DAY` : ""}`,
    done: () => made.again(),
  });
  const made = panel("Access tokens", "", [make], table, async () => {
    const [found, granted] = [await listed("SHOW TOKENS"), await listed("SHOW GRANTS")];
    table.set(found.map((each) => {
      const own = granted.filter(({ token }) => token === each.name);
      return h("tr", {}, h("td", {}, h("span", { class: "name" }, each.name)), h("td", {}, toned(each.state === "valid" ? "" : "idle", each.state)),
        h("td", {}, own.length ? own.map((grant) => h("div", {}, `${grant.role} in ${grant.schema === null ? "the database" : grant.schema}`)) : h("span", { class: "dim" }, "none")),
        h("td", { class: "dim nowrap" }, at(each.created)), h("td", { class: "dim nowrap" }, each.expires === null ? "never" : at(each.expires)),
        h("td", {}, h("div", { class: "buttons" }, grantButton(each.name, role, () => made.again()),
          action("Drop…", { role, harms: true, title: `Drop token ${each.name}`, sql: `DROP TOKEN ${quoted(each.name)}`, does: "Clients with this token are refused from now on.", done: () => made.again() }))));
    }), "No tokens: whoever reaches this server is its owner. With a token, every request needs one.");
  });
  return made.element;
}

const grantButton = (name, role, done) => action("Roles…", {
  role, title: `Grant or revoke a role of ${name}`, does: "Readers see rows, writers change them, owners create, change and drop. A role in the database holds in each schema.",
  fields: [{ name: "way", label: "Change", options: ["GRANT", "REVOKE"] }, { name: "granted", label: "Role", options: ROLES }, { name: "schema", label: "Schema (the database, if empty)", placeholder: "gold" }],
  sql: ({ way, granted, schema }) => `${way} ${granted} ON ${schema ? `SCHEMA ${quoted(schema)}` : "DATABASE"} ${way === "GRANT" ? "TO" : "FROM"} ${quoted(name)}`,
  done,
});
