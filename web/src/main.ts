import { mount } from "svelte";

import App from "./App.svelte";
import "./app.css";
import { repairLanguage } from "./chart/language";
import { startPage } from "./start_page";
import { route } from "./state/route.svelte";
import { session } from "./state/session.svelte";

void session.start();
startPage(route.current);
repairLanguage(navigator); // takes some milliseconds, while the answers are on their way
const target = document.getElementById("app");
if (target) mount(App, { target });
