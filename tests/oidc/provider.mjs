// oidc-provider on loopback: a certified OpenID provider, with accounts that the tests set.
//
// `node provider.mjs REDIRECT_URI` prints its issuer. Every sign-in is that of `person`, without a page to click. A test
// changes it by POST /test with JSON of: person (claims, with sub), rotate (new signing key), skew (seconds that its
// clock is ahead), slow (does not answer). The answer has the paths of the requests since the last one.
import { createServer } from 'node:http';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import Provider from 'oidc-provider';

const [redirectUri] = process.argv.slice(2);
const now = Date.now.bind(Date);
let person = { sub: 'nobody' };
let slow = false;
let issuer;
let provider;
let paths = [];

function signingKey() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const kid = randomBytes(8).toString('hex');
  return { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256', kid };
}

function start() {
  provider = new Provider(issuer, {
    jwks: { keys: [signingKey()] },
    clients: [{ client_id: 'pulsekeeper', client_secret: 'provider-secret', redirect_uris: [redirectUri] }],
    cookies: { keys: ['tests'] },
    scopes: ['openid', 'email', 'groups'],
    claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'] },
    pkce: { required: () => true },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (ctx, sub) => ({ accountId: sub, claims: () => ({ ...person, sub }) }),
    loadExistingGrant: async (ctx) => {
      const grant = new ctx.oidc.provider.Grant({ clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId });
      grant.addOIDCScope('openid email groups');
      await grant.save();
      return grant;
    },
  });
}

async function control(request, response) {
  let text = '';
  for await (const part of request) text += part;
  const change = JSON.parse(text);
  if ('person' in change) person = change.person;
  if ('skew' in change) Date.now = () => now() + change.skew * 1000;
  if ('slow' in change) slow = change.slow;
  if (change.rotate) start();
  response.end(JSON.stringify(paths));
  paths = [];
}

const server = createServer(async (request, response) => {
  if (request.url === '/test') return control(request, response);
  paths.push(request.url.split('?')[0]);
  if (slow) return undefined;
  if (request.url.startsWith('/interaction/')) {
    return provider.interactionFinished(request, response, { login: { accountId: person.sub } });
  }
  return provider.callback()(request, response);
});
server.listen(0, '127.0.0.1', () => {
  issuer = `http://127.0.0.1:${server.address().port}`;
  start();
  console.log(issuer);
});
