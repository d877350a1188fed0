// What a reason means and what to do about it, for people who have not read the documents.

const HTTP = {
  401: ["needs a login", "Nothing: such pages are not crawled."],
  403: [
    "the site forbids it",
    "Some sites refuse crawlers. Slow down, and see that CRAWL_CONTACT names somebody they can ask.",
  ],
  404: ["not found", "Nothing: links to pages that are gone are normal."],
  410: ["gone for good", "Nothing: the site removed it."],
  429: [
    "the site says: too many requests",
    "Nothing: the domain is slowed down by itself. A longer delay for the next crawl helps.",
  ],
  500: ["error of the site", "Nothing now; add the URL as a seed again another day."],
  503: ["the site is overloaded", "Nothing: it is retried more slowly by itself."],
};

// Pattern of a reason -> what it means, what to do.
const REASONS = [
  [
    /^robots_unreachable|^robots_(5|net|err)/,
    "robots.txt could not be fetched",
    "Nothing: without it a site is not crawled. It is asked again later.",
  ],
  [
    /^robots/,
    "the site's robots.txt forbids it",
    "Nothing: it is obeyed. Ask the site's owner if you need these pages.",
  ],
  [/^excluded/, "excluded by a rule of this crawl", "Nothing, unless CRAWL_EXCLUDE is wider than you meant."],
  [/^length/, "the URL is too long", "Nothing, or raise CRAWL_MAX_URL."],
  [/^redirect_loop/, "redirects to itself", "Nothing: the site wants a cookie or is misconfigured."],
  [/^redirects|^redirect_redirects/, "too many redirects", "Nothing, or raise CRAWL_MAX_REDIRECTS."],
  [/^redirect_/, "redirects to a URL that the rules refuse", "Widen the scope if you want these pages."],
  [/^bad_redirect/, "redirects to something that is not a URL", "Nothing: an error of the site."],
  [/^content_type/, "not a kind of document that is read", "Nothing, unless you want files of this kind."],
  [/^trap_/, "looks like an endless set of pages", "If they are real pages, release the domain."],
  [
    /^cannot_resolve/,
    "the name is not known",
    "Check the spelling of the domain, and this machine's name servers.",
  ],
  [
    /^address_/,
    "a private address",
    "Only the person who runs the server can allow it: CRAWL_ALLOW_ADDRESSES.",
  ],
  [/^certificate/, "its certificate is not valid", "Tell the site's owner; such sites are not read."],
  [/^tls/, "no encrypted connection could be made", "Try the http:// address as a seed."],
  [
    /^connect_timeout/,
    "the site did not answer at all",
    "It may be down, or it blocks this machine. Try it in a browser.",
  ],
  [
    /timeout/,
    "the site was too slow",
    "Nothing: it is retried. If there are many of these, check this machine's network.",
  ],
  [
    /^connection_failed/,
    "no connection could be made",
    "It may be down, or this machine has no way to it. Check its network.",
  ],
  [
    /^connection_|^no_answer|^failed/,
    "the connection was refused or broken off",
    "It may be down, or it blocks this machine. Try it in a browser.",
  ],
  [/^data_loss/, "it broke off within the page", "Nothing: it was retried. An error of the site."],
  [/^bad_response|^headers_/, "what it sent is not HTTP", "Nothing: an error of the site."],
  [/^bad_request|^unsupported/, "a URL that cannot be requested", "Nothing: an error in a link."],
  [/^no_contact/, "the server has no contact", "Only the person who runs the server can set it: CRAWL_CONTACT."],
  [/internal_error/, "an error in the crawler", "Look at the logs of the shards, and report it."],
];

const PARKED = {
  failures: [
    "failed too often in a row",
    "It is tried again after a while. If you know it is up again, release it.",
  ],
  retry_after: [
    "asked for a long rest",
    "It continues by itself when the rest is over. Do not release it sooner.",
  ],
  byte_budget: ["sent as many bytes as one domain may", "Release it to give it the same again."],
};

const ROBOTS = {
  allowed: "allowed",
  partly: "in part",
  refused: "forbidden",
  unreachable: "unreachable",
  "": "not asked yet",
};

export function adviceFor(reason) {
  const status = /^(?:retry_)?http_(\d{3})/.exec(reason)?.[1];
  if (status)
    return (
      HTTP[status] ?? [
        `answered with status ${status}`,
        Number(status) >= 500 ? HTTP[500][1] : "Nothing: an answer of the site.",
      ]
    );
  const [, what, todo] = REASONS.find(([pattern]) => pattern.test(reason)) ?? [];
  return what ? [what, todo] : ["", "Look at a page with this error under Pages."];
}

export const adviceForParked = (reason) => PARKED[reason] ?? [reason, ""];

export const robotsText = (state) => (state === undefined || state === null ? "" : (ROBOTS[state] ?? state));
