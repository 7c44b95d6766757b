/* What the shell does without asking the server. Called by dashboard/routing.py. */
window.dash_clientside = Object.assign({}, window.dash_clientside, {
  ampdoctor: {
    viewOfAddress: (href) => Object.fromEntries(new URL(href, window.location.origin).searchParams),

    /* Go to an address as a link would: dcc.Location hears of it by this event. */
    go: (target) => {
      if (target) {
        window.history.pushState({}, "", target);
        window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
      }
      return window.dash_clientside.no_update;
    },

    /* Keep the address in step with what is shown, and let every link lead to the same view of another page. */
    addressOfView: (view, pathname, ids, home) => {
      const chosen = Object.entries(view || {}).filter(([, value]) => value !== "");
      const query = new URLSearchParams(chosen).toString();
      const search = query ? "?" + query : "";
      const changed = window.dash_clientside.callback_context.triggered.some((t) => t.prop_id === "view.data");
      if (view && changed && search !== window.location.search) {
        window.history.replaceState(window.history.state, "", window.location.pathname + search);
      }
      const here = (pathname || "/").replaceAll("/", "") || home;
      return [
        ids.map((id) => "/" + id.nav + search),
        ids.map((id) => (id.nav === here ? "nav nav-here" : "nav")),
      ];
    },

    /* Another run or rank is another subject: what was chosen within the one before does not carry over.
       Another language is another page: it is loaded anew, shell and all. */
    choose: (run, rank, lang, view) => {
      const before = view || {};
      const next = { ...before };
      const asked = window.dash_clientside.callback_context.triggered.map((t) => t.prop_id.split(".")[0]);
      if (asked.includes("choose-run") && run && run !== (before.run || ".")) {
        for (const key of Object.keys(next)) if (!["lang", "metric", "axis"].includes(key)) delete next[key];
        next.run = run;
      } else if (asked.includes("choose-rank") && rank && before.rank !== rank && (before.rank || rank !== "0")) {
        next.rank = rank;
      }
      if (asked.includes("choose-lang") && lang && lang !== (before.lang || document.documentElement.lang)) {
        next.lang = lang;
        document.cookie = `ampdoctor-lang=${lang}; path=/; max-age=31536000; samesite=lax`;
        window.location.search = "?" + new URLSearchParams(next).toString();
        return window.dash_clientside.no_update;
      }
      const query = new URLSearchParams(next).toString();
      if (query === new URLSearchParams(before).toString()) return window.dash_clientside.no_update;
      return window.location.pathname + (query ? "?" + query : "");
    },

    toggleTheme: (clicks, theme) => {
      const wanted = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      const now = theme || wanted;
      return clicks ? (now === "dark" ? "light" : "dark") : now;
    },

    wearTheme: (theme, lang) => {
      const name = theme || "light";
      document.documentElement.lang = lang;
      document.documentElement.dataset.theme = name;
      document.body.dataset.agThemeMode = name;
      return name;
    },
  },
});
