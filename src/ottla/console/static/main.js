// The modules that every page loads.
import "./times.js";
import "./live.js";
import "./swap.js";
import "./keys.js";
import "./marks.js";

// Of many tabs on a narrow screen, the open one is in sight. The page itself stays where it is.
const tab = document.querySelector(".tabs a[aria-current]");
if (tab) {
  const bar = tab.closest(".tabs");
  const [of, around] = [tab.getBoundingClientRect(), bar.getBoundingClientRect()];
  bar.scrollLeft += of.left - around.left - (around.width - of.width) / 2;
}
