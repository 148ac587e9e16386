// onnx_run.cjs MODULES FOLDER: runs FOLDER/model.onnx by the onnxruntime-node that lies in MODULES on FOLDER/tokens.json
// ({samples, tokens}) and writes the logits to FOLDER/logits as f32.
const fs = require('fs');
const path = require('path');

async function main(modules, folder) {
  const runtime = require(require.resolve('onnxruntime-node', { paths: [modules] }));
  const batch = JSON.parse(fs.readFileSync(path.join(folder, 'tokens.json')));
  const session = await runtime.InferenceSession.create(path.join(folder, 'model.onnx'), { intraOpNumThreads: 1 });
  const tokens = new runtime.Tensor('int64', BigInt64Array.from(batch.tokens.map(BigInt)),
                                    [batch.samples, batch.tokens.length / batch.samples]);
  const { logits } = await session.run({ tokens });
  console.log(`logits ${logits.dims.join('x')}`);
  fs.writeFileSync(path.join(folder, 'logits'), Buffer.from(logits.data.buffer, logits.data.byteOffset, logits.data.byteLength));
}

main(process.argv[2], process.argv[3]).catch((error) => {
  console.error(error);
  process.exit(1);
});
