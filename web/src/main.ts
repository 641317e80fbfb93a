import { mount } from "svelte";

import App from "./App.svelte";
import "./app.css";
import { startPage } from "./start_page";
import { route } from "./state/route.svelte";
import { session } from "./state/session.svelte";

void session.start();
startPage(route.current);
const target = document.getElementById("app");
if (target) mount(App, { target });
