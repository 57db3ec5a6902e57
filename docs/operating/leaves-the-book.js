// A link that leaves the book leads to a page of the repository: its path is shown, and the link is taken away.
for (const link of document.querySelectorAll('main a[href^="../"]')) {
  const path = link.getAttribute("href").replace(/^\.\.\/\.\.\//, "").replace(/^\.\.\//, "docs/").replace(".html", ".md");
  link.replaceWith(`${link.textContent} (${path} in the repository)`);
}
