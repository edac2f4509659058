// A line of JSON in, [[position, event], …]; a line of JSON out, the state they fold to. For test_fold_properties.py.

import { createInterface } from 'node:readline'
import { fold, waiting } from '../../web/fold.js'

for await (const line of createInterface({ input: process.stdin })) {
  const state = JSON.parse(line).reduce(
    (state, [position, event]) => fold(state, position, event),
    waiting('run_8f2c'),
  )
  process.stdout.write(`${JSON.stringify(state)}\n`)
}
