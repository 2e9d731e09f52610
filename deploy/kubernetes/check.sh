#!/usr/bin/env bash
# Checks the manifests against the types of Kubernetes and of the Prometheus operator, unknown fields included: kubectl puts them
# together, npm brings the types (60 MB) and a compiler. No cluster.
set -euo pipefail
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kubectl kustomize "$here/monitoring" >"$work/all.yaml"
cd "$work"
echo '{"private": true, "type": "module"}' >package.json
npm install --silent kubernetes-models@5.1.0 @kubernetes-models/prometheus-operator@6.0.0 js-yaml@4 typescript@5
cat >types.mjs <<'END'
import fs from "fs";
import yaml from "js-yaml";
yaml.loadAll(fs.readFileSync("all.yaml", "utf8")).forEach((object, i) => {
  const types = object.apiVersion.startsWith("monitoring.") ? "@kubernetes-models/prometheus-operator" : "kubernetes-models";
  console.log(`import { I${object.kind} as T${i} } from "${types}/${object.apiVersion}";`);
  console.log(`export const object${i}: T${i} = ${JSON.stringify(object, null, 1)};`);
});
END
node types.mjs >objects.ts
npx tsc --noEmit --strict --skipLibCheck --module nodenext --moduleResolution nodenext objects.ts
echo "$(grep -c '^export const' objects.ts) objects are as their types say"
