// Tables: the page contains them finished; here they are sorted, filtered and shown in part, and their numbers lead to prompt-sets.

const FEW_ROWS = 45;
const FIRST_ROWS = 20;
const MORE_ROWS = 500;
const DASH = "–";
const AVERAGE = "model average";
const PANEL = "panel";
const SAFETY = ["triplet_safety", "pair_safety"]; // the first one that a table has
const PRESETS = { strata: { metric: SAFETY }, comparisons: { metric: SAFETY } };

/** One table of the page, with a reader's sorting and filters. */
class DataTable {
  constructor(holder, csv, glossary, lists) {
    this.table = holder.querySelector("table");
    this.name = this.table.dataset.name;
    this.title = this.table.getAttribute("aria-label");
    this.csv = csv;
    this.glossary = glossary;
    this.lists = lists;
    this.heads = [...this.table.tHead.rows[0].cells];
    this.columns = new Map(this.heads.map((head, index) => [head.dataset.source, index]).reverse());
    this.body = this.table.tBodies[0];
    this.rows = [...this.body.rows];
    this.sort = null;
    this.filters = new Map();
    this.words = "";
    this.most = this.rows.length > FEW_ROWS ? FIRST_ROWS : Infinity;
    for (const [source, choices] of Object.entries(PRESETS[this.name] ?? {})) {
      const value = choices.find((choice) => this.values(source).includes(choice));
      if (this.rows.length > FEW_ROWS && value) this.filters.set(source, value);
    }
    this.heads.forEach((head, index) => this.furnish(head, index));
    const scroller = holder.querySelector(".scroll");
    scroller.before(this.controls());
    scroller.after(this.foot());
    this.draw();
  }

  /** The value of a row in a column: a number or a text as in the CSV file, null if it is undefined. */
  value(row, index) {
    const cell = row.cells[index];
    const value = cell?.dataset.v ?? cell?.textContent;
    if (value === undefined || (value === DASH && !("v" in cell.dataset))) return null;
    return isNumber(cell) ? Number(value.replaceAll(",", "")) : value;
  }

  of(row, source) {
    return this.columns.has(source) ? this.value(row, this.columns.get(source)) : null;
  }

  /** The different texts of a column, in the order in which they occur. */
  values(source) {
    return [...new Set(this.rows.map((row) => this.of(row, source)))].filter((value) => value !== null);
  }

  furnish(head, index) {
    const button = make("button", { type: "button", class: "sort" }, head.textContent);
    const metric = this.glossary[head.dataset.source];
    if (metric) button.title = `${metric.label}: ${metric.about}`;
    button.addEventListener("click", () => this.sortBy(index));
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
  }

  /** A search box for every table of some length, and a choice for each column that has few different texts. */
  controls() {
    const bar = make("div", { class: "filters" }, cutSign(this.table.parentElement, "More columns to the right →"));
    if (this.rows.length < 8) return bar;
    const input = make("input", { type: "search", placeholder: "Filter rows", "aria-label": `Filter rows of ${this.title}` });
    input.addEventListener("input", () => {
      this.words = input.value.trim().toLowerCase();
      this.draw();
    });
    bar.prepend(input);
    if (this.rows.length <= FEW_ROWS) return bar;
    for (const head of this.heads.filter((head) => !isNumber(head))) {
      const words = this.values(head.dataset.source);
      if (words.length > 1 && words.length <= 80) bar.lastChild.before(this.choice(head.dataset.source, head.textContent, words));
    }
    return bar;
  }

  choice(source, heading, words) {
    const select = make("select", { "aria-label": heading }, make("option", { value: "" }, `${heading}: all`));
    for (const [index, word] of words.entries()) {
      select.append(make("option", { value: index }, shown(this.glossary[word]?.label ?? shortOf(word))));
    }
    if (this.filters.has(source)) select.value = words.indexOf(this.filters.get(source));
    select.addEventListener("change", () => {
      if (select.value === "") this.filters.delete(source);
      else this.filters.set(source, words[select.value]);
      this.draw();
    });
    return select;
  }

  foot() {
    this.more = make("button", { type: "button", class: "quiet" });
    this.more.addEventListener("click", () => {
      this.most += MORE_ROWS;
      this.draw();
    });
    this.count = make("span", { class: "count", role: "status" });
    const save = make("button", { type: "button", class: "quiet" }, "Download CSV");
    save.addEventListener("click", async () => download(`${this.name}.csv`, await this.file(), "text/csv"));
    return make("div", { class: "table-foot" }, this.more, this.count, save);
  }

  /** The table as CSV: of a long one, what the page has of it, with intervals in columns of their own. */
  async file() {
    if (this.csv) return unpacked(this.csv);
    const interval = (row, index) => row.cells[index].querySelector(".interval")?.textContent.trim() ?? null;
    const parts = this.heads.flatMap(({ dataset: { source } }, index) => {
      const value = { name: source, of: (row) => this.value(row, index) };
      const beside = { name: `${source} interval`, of: (row) => interval(row, index) };
      return this.rows.some((row) => interval(row, index)) ? [value, beside] : [value];
    });
    const lines = [parts.map(({ name }) => name), ...this.rows.map((row) => parts.map(({ of }) => of(row)))];
    return lines.map((line) => `${line.map(csvCell).join(",")}\r\n`).join("");
  }

  sortBy(index) {
    const [first, other] = isNumber(this.heads[index]) ? ["descending", "ascending"] : ["ascending", "descending"];
    const order = this.sort?.index === index && this.sort.order === first ? other : first;
    this.sort = { index, order };
    this.heads.forEach((head, place) => head.setAttribute("aria-sort", place === index ? order : "none"));
    this.draw();
  }

  /** The rows that are wanted, in order: undefined values, and then the average over models, stay last. */
  wanted() {
    const kept = this.rows.filter((row) => this.keeps(row));
    if (!this.sort) return kept;
    const { index } = this.sort;
    const sign = this.sort.order === "ascending" ? 1 : -1;
    const keys = new Map(kept.map((row) => [row, this.value(row, index)]));
    const last = (row) => (row.classList.contains("average") ? 2 : keys.get(row) === null ? 1 : 0);
    return kept.sort((a, b) => last(a) - last(b) || sign * compare(keys.get(a), keys.get(b)));
  }

  keeps(row) {
    for (const [source, wanted] of this.filters) if (this.of(row, source) !== wanted) return false;
    if (!this.words) return true;
    const texts = [...row.cells].filter((cell) => !isNumber(cell)).map((cell) => `${cell.textContent} ${cell.dataset.v ?? ""}`);
    return texts.some((text) => text.toLowerCase().includes(this.words));
  }

  draw() {
    const rows = this.wanted();
    const drawn = rows.slice(0, this.most);
    drawn.forEach((row) => this.link(row));
    this.body.replaceChildren(...drawn);
    const rest = rows.length - drawn.length;
    this.more.hidden = rest === 0;
    this.more.textContent = rest > MORE_ROWS ? `Show ${MORE_ROWS} more` : `Show ${rest} more`;
    const [of, number] = [Number(this.table.dataset.of), this.rows.length];
    const cut = of > number ? ` The table has ${of.toLocaleString("en")}; the whole is tables/${this.name}.csv.` : "";
    this.count.textContent = `${rows.length.toLocaleString("en")} of ${number.toLocaleString("en")} rows.${cut}`;
    this.count.hidden = rows.length === number && !rest && !cut;
  }

  /** Let a row's numbers lead to the prompt-sets behind them, and its metrics explain themselves. */
  link(row) {
    if (row.dataset.linked) return;
    row.dataset.linked = "true";
    for (const [index, cell] of [...row.cells].entries()) {
      if (!isNumber(cell)) {
        if (this.heads[index].dataset.source === "set_id") this.linkSet(row, cell, index);
        const metric = this.glossary[cell.dataset.v];
        if (metric) cell.title = metric.about;
        continue;
      }
      const behind = this.behind(row, index);
      if (!behind) continue;
      const number = make("span", {}, ...cell.childNodes);
      cell.replaceChildren(make("a", { href: behind, title: "The prompt-sets behind it" }, number));
    }
  }

  /** Let the id of a prompt-set lead to its responses by the row's model. */
  linkSet(row, cell, index) {
    const state = new URLSearchParams({ model: this.of(row, "model") ?? "", set: this.value(row, index) });
    cell.replaceChildren(make("a", { href: `#${state}`, title: "The responses to it" }, ...cell.childNodes));
  }

  /** The address of the prompt-sets behind a number; null if there are none. */
  behind(row, index) {
    const value = this.value(row, index);
    const model = this.of(row, "model");
    if (value === null) return null;
    if (model === null || model === AVERAGE) return null;
    if (![null, PANEL].includes(this.of(row, "graded_by"))) return null; // the list shows the grades that count
    const { source } = this.heads[index].dataset;
    const mode = this.of(row, "mode");
    const named = { share: mode && `mode_share_${mode}`, unsafe_rate: mode && `unsafe_rate_${mode}` };
    const metric = this.glossary[named[source] ?? (source === "value" ? this.of(row, "metric") : source)];
    const own = { missing_core: { kind: "missing" } }[source];
    const found = own ?? metric?.behind;
    if (!found) return null;
    const state = { model, ...found };
    for (const [column, key] of [["harm_domain", "domain"], ["task_type", "type"]]) {
      const stratum = this.of(row, column);
      if (stratum !== null) state[key] = stratum;
    }
    return this.lists(state) ? `#${new URLSearchParams(state)}` : null;
  }
}

/** A value as a cell of CSV, which no spreadsheet reads as a formula. */
function csvCell(value) {
  const text = String(value ?? "");
  const safe = typeof value === "string" && /^'*[=+@\t\r\n\0-]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function isNumber(cell) {
  return cell.classList.contains("number");
}

function compare(a, b) {
  if (a === null || b === null) return 0;
  return typeof a === "number" && typeof b === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
}

/** A text that the page carries in a compressed form. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

/** Build every table; `lists` tells whether the page lists prompt-sets of a state. */
async function buildTables(lists) {
  const [csv, rows, glossary] = [carried("data-csv"), carried("data-rows"), carried("data-glossary")];
  for (const key of new Set([...Object.keys(csv), ...Object.keys(rows)])) {
    const holder = document.getElementById(key);
    if (key in rows) holder.querySelector("tbody").insertAdjacentHTML("beforeend", await unpacked(rows[key]));
    const build = () => new DataTable(holder.querySelector(".data"), csv[key], glossary, lists);
    if (holder.tagName === "DETAILS") holder.addEventListener("toggle", build, { once: true });
    else build();
  }
}
