"""Real web pages by Playwright and Chromium: the only room that knows of either."""
