// The editor of the workbench: CodeMirror, with our keywords, names and the place of an error.
import * as cm from "./vendor/codemirror.js";
import { catalog } from "./catalog.js";
import { shortKind } from "./dom.js";

const STYLE = {
  "&": { color: "var(--text)", fontSize: "13px", minHeight: "132px", maxHeight: "42vh" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", overflow: "auto" },
  ".cm-content": { padding: "12px 14px", caretColor: "var(--accent)", minHeight: "132px" },
  ".cm-placeholder": { color: "var(--dim)" },
  ".cm-matchingBracket": { background: "var(--accent-soft)", outline: "none" },
  ".cm-wrong": { textDecoration: "underline wavy var(--bad)", textUnderlineOffset: "4px", background: "var(--bad-soft)" },
  ".cm-tooltip": { background: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px", overflow: "hidden", boxShadow: "0 4px 16px rgb(0 0 0 / .14)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "12px", maxHeight: "14em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 10px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--accent-soft)", color: "var(--text)" },
  ".cm-completionDetail": { color: "var(--dim)", fontStyle: "normal", marginLeft: "1.5em", fontFamily: "system-ui, sans-serif" },
  ".cm-completionMatchedText": { textDecoration: "none", color: "var(--accent)" },
};
const COLOURS = [
  { tag: cm.tags.keyword, color: "var(--accent)" },
  { tag: [cm.tags.string, cm.tags.special(cm.tags.string)], color: "var(--good)" },
  { tag: [cm.tags.number, cm.tags.bool, cm.tags.null], color: "var(--warn)" },
  { tag: cm.tags.comment, color: "var(--dim)", fontStyle: "italic" },
];
const AFTER_THESE = /\b(from|join|into|update|describe|extended|subscribe|to|verify|repair|copy|truncate\s+table|refresh)\s+[\w.]*$/i;
const MEMBER = /([\w.]+)\.(\w*)$/;

const CLOSE = cm.completionKeymap.find(({ key }) => key === "Escape");

const setWrong = cm.StateEffect.define();
const wrong = cm.StateField.define({
  create: () => cm.Decoration.none,
  update(marks, transaction) {
    for (const effect of transaction.effects) {
      if (effect.is(setWrong)) {
        if (effect.value === null) return cm.Decoration.none;
        const { from, to } = effect.value;
        return cm.Decoration.set(cm.Decoration.mark({ class: "cm-wrong" }).range(from, to));
      }
    }
    return transaction.docChanged ? cm.Decoration.none : marks;
  },
  provide: (field) => cm.EditorView.decorations.from(field),
});

/**
 * Make an editor. It lives in a shadow root, whose style sheets the content security policy allows.
 *
 * `run` is called on Ctrl-Enter; `changed` with the text after each change.
 */
export function editor(initial, { run, changed }) {
  const element = document.createElement("div");
  element.className = "editor";
  const root = element.attachShadow({ mode: "open" });
  const words = (catalog()?.keywords ?? []).join(" ").toLowerCase();
  const dialect = cm.SQLDialect.define({ keywords: words, builtin: "", types: "", backslashEscapes: true, identifierQuotes: "`", doubleQuotedStrings: true });
  const view = new cm.EditorView({
    root,
    parent: root,
    state: cm.EditorState.create({
      doc: initial,
      extensions: [
        cm.Prec.highest(cm.keymap.of([{ key: "Mod-Enter", run: () => { run(); return true; } }])),
        cm.history(),
        cm.closeBrackets(),
        cm.bracketMatching(),
        cm.highlightSpecialChars(),
        cm.autocompletion({ override: [complete], icons: false }),
        cm.keymap.of([...cm.closeBracketsKeymap, ...cm.completionKeymap, ...cm.historyKeymap, ...cm.defaultKeymap]),
        dialect.extension,
        cm.syntaxHighlighting(cm.HighlightStyle.define(COLOURS)),
        cm.EditorView.theme(STYLE),
        cm.EditorView.lineWrapping,
        cm.EditorView.contentAttributes.of({ "aria-label": "SQL", spellcheck: "false" }),
        cm.placeholder("SELECT …"),
        wrong,
        cm.EditorView.updateListener.of((update) => update.docChanged && changed(update.state.doc.toString())),
      ],
    }),
  });
  return {
    element,
    focus: () => view.focus(),
    /** Close the list of completions, also one that is about to open. */
    closeCompletion: () => CLOSE.run(view),
    close: () => view.destroy(),
    get text() {
      return view.state.doc.toString();
    },
    set text(value) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: value }, selection: { anchor: value.length } });
    },
    /** What is to be run: the selection, or all, and where it begins. */
    get asked() {
      const { from, to } = view.state.selection.main;
      return from === to ? { sql: this.text, from: 0 } : { sql: view.state.sliceDoc(from, to), from };
    },
    insert(value) {
      view.dispatch(view.state.replaceSelection(value));
      view.focus();
    },
    /** Mark a place, and put the cursor there; without one, mark nothing. */
    mark(place) {
      const length = view.state.doc.length;
      if (place === null || place.from >= length) {
        view.dispatch({ effects: setWrong.of(null) });
        return;
      }
      const range = { from: place.from, to: Math.min(Math.max(place.to, place.from + 1), length) };
      view.dispatch({ effects: setWrong.of(range), selection: { anchor: range.from }, scrollIntoView: true });
    },
  };
}

/** Complete columns of the relations that are named, relations, and keywords. */
function complete(context) {
  const known = catalog();
  if (known === null) return null;
  const before = context.state.sliceDoc(Math.max(0, context.pos - 4000), context.pos);
  const statement = before.slice(before.lastIndexOf(";") + 1);
  const whole = statement + context.state.sliceDoc(context.pos, context.pos + 4000).split(";")[0];
  const { relations } = known;
  const member = MEMBER.exec(statement);
  if (member !== null) {
    const found = columnsOfAlias(member[1], whole, relations);
    const names = relations.filter(({ name }) => name.startsWith(`${member[1].toLowerCase()}.`));
    const options = [...found, ...names.map(({ name, kind }) => option(name.slice(member[1].length + 1), kind))];
    return options.length ? { from: context.pos - member[2].length, options } : null;
  }
  const word = context.matchBefore(/\w+/);
  const after = AFTER_THESE.test(statement);
  if (word === null && !context.explicit && !after) return null;
  const options = relations.filter(({ kind }) => kind !== "sink").map(({ name, kind }) => option(name, shortKind(kind), 1));
  if (!after) {
    const mentioned = new Set(whole.toLowerCase().match(/\w+/g) ?? []);
    const used = relations.filter(({ name }) => mentioned.has(name.split(".").at(-1)));
    // The select list comes before FROM, so any relation may follow.
    const named = used.length || mentioned.has("from") ? used : relations;
    const seen = new Set();
    for (const relation of named) {
      for (const { name, type } of relation.columns) {
        if (!seen.has(name)) options.push(option(name, `${type} of ${relation.name}`, 2));
        seen.add(name);
      }
    }
    const lower = word !== null && word.text === word.text.toLowerCase();
    for (const keyword of known.keywords) options.push({ label: lower ? keyword.toLowerCase() : keyword, type: "keyword" });
  }
  return { from: word?.from ?? context.pos, options, validFor: /^\w*$/ };
}

function columnsOfAlias(alias, statement, relations) {
  const own = relations.find(({ name }) => name === alias.toLowerCase());
  const named = own ?? relations.find(({ name }) => {
    const plain = name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    return new RegExp(`(?:^|[\\s,(])\`?${plain}\`?\\s+(?:as\\s+)?${alias.replace(/\W/g, "")}\\b`, "i").test(statement);
  });
  return (named?.columns ?? []).map(({ name, type }) => option(name, type, 2));
}

function option(name, detail, boost = 0) {
  const plain = /^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$/.test(name);
  return { label: name, apply: plain ? name : `\`${name.replaceAll("`", "``")}\``, detail, boost };
}
