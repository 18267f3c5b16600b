// What changes around a picture: the size of its place, and the theme of the page or the system.
// `draw` follows the one, `restyle` the other; returns the function that stops watching.
function watchLooks(host, draw, restyle) {
  const sized = new ResizeObserver(draw);
  sized.observe(host);
  const themed = new MutationObserver(restyle);
  const watched = { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name",
    "data-theme", "class"] };
  themed.observe(document.body, watched);
  themed.observe(document.documentElement, watched);
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", restyle);
  return () => {
    sized.disconnect();
    themed.disconnect();
    system.removeEventListener("change", restyle);
  };
}
