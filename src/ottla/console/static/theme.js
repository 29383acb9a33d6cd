// Light, dark or as the system says: kept in this browser. Loaded before the page is drawn.
const stored = localStorage.getItem("theme");
if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;

addEventListener("DOMContentLoaded", () => {
  const buttons = [...document.querySelectorAll("[data-set-theme]")];
  const show = () => {
    const now = document.documentElement.dataset.theme || "system";
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.setTheme === now));
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const wanted = button.dataset.setTheme;
      if (wanted === "system") {
        delete document.documentElement.dataset.theme;
        localStorage.removeItem("theme");
      } else {
        document.documentElement.dataset.theme = wanted;
        localStorage.setItem("theme", wanted);
      }
      show();
    });
  }
  show();
});
