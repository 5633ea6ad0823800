/* Which of the pages that hold every word of a query come first: those with a heading that has most of them,
 * and a result leads to that heading. Sphinx scores a word of a title alike wherever it stands and sorts what
 * is equal by name, which puts all notebooks before the guide. */
const searchGroups = [
  [/^docs\/guide\/README|^docs\/index|^docs\/notebooks$/, -4],
  [/^docs\/(guide\/|faq|install|migration|comparison)/, 4],
  [/^docs\/results\//, 2],
  [/^docs\/(api\/|equations)/, -2],
  [/solutions\/|^CONTRIBUTING|^cython_ext|^docs\/(releasing|cuda-kernels|how-a-call)/, -6],
];

const searchWords = (text) => {
  const stemmer = new Stemmer();
  const words = splitQuery(text.toLowerCase().replaceAll("α", " alpha "));
  return new Set(words.filter((word) => !stopwords.has(word)).map((word) => stemmer.stemWord(word)));
};

let searchHeadings; // of each document: their words, and where they are
const headingsOf = (docName) => {
  if (!searchHeadings) {
    searchHeadings = new Map(Search._index.docnames.map((name) => [name, []]));
    for (const [heading, places] of Object.entries(Search._index.alltitles))
      for (const [file, id] of places)
        searchHeadings.get(Search._index.docnames[file]).push([searchWords(heading), id]);
  }
  return searchHeadings.get(docName) ?? [];
};

var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: (result) => {
    const [docName, title, , , score, , kind] = result;
    if (kind === "object") return score + 15;
    if (kind !== "text") return score + 30;
    const asked = searchWords(new URLSearchParams(window.location.search).get("q") ?? "");
    const inTitle = searchWords(title);
    let best = 0;
    for (const [words, id] of headingsOf(docName)) {
      const own = [...asked].filter((word) => words.has(word)).length;
      const found = own + [...asked].filter((word) => !words.has(word) && inTitle.has(word)).length;
      const share = found / asked.size + own / (100 + words.size); // a short heading before a long one
      if (own && share > best) [best, result[2]] = [share, id ? `#${id}` : ""];
    }
    const group = searchGroups.find(([names]) => names.test(docName));
    return score / 5 + 30 * best + (group ? group[1] : 0);
  },
};

/* A question has words that its answer lacks: where few pages hold all of them, those that lack one follow. */
const searchLeniently = () => {
  const withAll = Search.performTermsSearch;
  Search.performTermsSearch = (words, excluded) => {
    const results = withAll(words, excluded);
    if (results.length >= 5 || words.size < 3) return results;
    const found = new Set(results.map(([docName]) => docName));
    for (const left of words)
      for (const result of withAll(new Set([...words].filter((word) => word !== left)), excluded))
        if (!found.has(result[0])) {
          found.add(result[0]);
          result[4] = -25;
          results.push(result);
        }
    return results;
  };
};
// Themes load this before or after the search itself.
if (typeof Search !== "undefined") searchLeniently();
else document.addEventListener("DOMContentLoaded", searchLeniently);
