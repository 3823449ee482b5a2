// A plain MQTT client, mqtt.js over a WebSocket as in a browser, that knows nothing of Locus.
//
//     cd examples/plain-javascript && npm install && node map_view.js [URL]
//
// A map shows the buses in its view and no others, and asks anew when somebody drags it.
import mqtt from "mqtt";

const url = process.argv[2] ?? "ws://127.0.0.1:8083";
const fleet = await mqtt.connectAsync(url);
const map = await mqtt.connectAsync(url);

const report = (bus, lon, lat) =>
  fleet.publishAsync(`buses/${bus}/pos`, JSON.stringify({ lon, lat }), { qos: 1 });
const inView = ([west, south, east, north]) => `$geo/bbox:${west},${south},${east},${north}/buses/+/pos`;

let shown;
const nextShown = () => new Promise((resolve) => (shown = resolve));
map.on("message", (topic, payload) => shown(`${topic} ${payload}`));

const seoul = [126.9, 37.5, 127.1, 37.6];
const paris = [2.2, 48.8, 2.5, 48.9];

await map.subscribeAsync(inView(seoul));
let next = nextShown();
await report("paris-72", 2.3522, 48.8566); // not in view
await report("seoul-402", 126.9779, 37.5663);
console.log("in view:", await next);

await map.subscribeAsync(inView(paris));
await map.unsubscribeAsync(inView(seoul)); // with the very string it was subscribed with
next = nextShown();
await report("seoul-402", 126.9785, 37.5668); // no longer in view
await report("paris-72", 2.3530, 48.8570);
console.log("in view:", await next);

await Promise.all([fleet.endAsync(), map.endAsync()]);
